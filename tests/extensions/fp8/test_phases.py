"""The phases of a calibration as words, against the options that the real scripts have, and each
model's rules."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules
from gaudi_launch.extensions.fp8.phases import (
    RECORD,
    CalibrationRequest,
    Done,
    Places,
    Scripts,
    about,
    phases,
    read_done,
    read_scripts,
    write_done,
)
from tests.support.calibration_scripts import (
    _EXAMPLE,
    DEEPSEEK,
    OPTIONS,
    POSTPROCESS,
    write_scripts,
)
from tests.support.cli import golden

RELEASES = ("1.21", "1.22", "vllm-gaudi")
PLACES = Places(Path("/out"), "g2")
WISH = CalibrationRequest("/m/Qwen3-32B", "Qwen3-32B", 2, "g2", "/d/set.pkl")


def calibration(release: str) -> Calibration:
    found = find(release if release not in ("1.21", "1.22") else f"vllm-fork@{release}").calibration
    assert found is not None
    return found


def rules_for(name: str, release: str) -> Rules:
    return calibration(release).rules_for(name)


def scripts(release: str) -> Scripts:
    return Scripts("/s", POSTPROCESS[release], OPTIONS[release], release == "vllm-gaudi")


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_read_of_the_scripts(release: str, tmp_path: Path) -> None:
    found = read_scripts(write_scripts(tmp_path / "s", release), calibration(release))
    assert found.postprocess == POSTPROCESS[release]
    assert {step: set(names) for step, names in found.options.items()} == {
        step: set(names) for step, names in OPTIONS[release].items()
    }
    assert found.reads_any_dataset == (release != "1.21")
    (tmp_path / "s" / found.postprocess).unlink()
    with pytest.raises(LaunchError) as refused:
        read_scripts(tmp_path / "s", calibration(release))
    assert refused.value.id == "calibrate.no_scripts" and "step-3-postprocess" in str(refused.value)
    home = "HabanaAI/vllm-hpu-extension" if release != "vllm-gaudi" else "vllm-project/vllm-gaudi"
    assert f"https://github.com/{home}" in str(refused.value)


# a release, and what its calibration differs in
CASES: list[tuple[str, dict[str, Any]]] = [
    ("1.21", {}),
    ("1.22", {"experts": True, "eager": True, "samples": 99}),
    # another data set needs no first step
    ("1.22", {"dataset": "/d/pile-10k", "cards": 1, "name": "DeepSeek-R1-Distill-Llama-8B"}),
    # the batch is stated once: a second one would win over the user's
    ("1.22", {"dataset": "/d/pile-10k", "batch": 8}),
    ("1.22", {"batch": 8}),
    # the plugin collects the experts of all cards; one card has all of them, a dense model none
    ("vllm-gaudi", {"name": "Qwen3-30B-A3B", "experts": True}),
    ("vllm-gaudi", {"name": "Qwen3-30B-A3B", "experts": True, "cards": 1}),
    ("vllm-gaudi", {}),
]
# models with rules of their own
NAMED = {
    "1.21": ("Mixtral-8x7B-v0.1", "QwQ-32B", "Qwen3-8B"),
    "1.22": ("Llama-3.1-8B", "Qwen3-32B", "Qwen3-30B-A3B", "Qwen2-7B-Instruct", "GLM-4.5"),
    "vllm-gaudi": (
        *("Llama-3.1-8B", "Mixtral-8x7B-v0.1", "DeepSeek-V3", "granite-4.0-h"),
        *("my-deepseek", "my-granite-4", "qwen3"),
    ),
    DEEPSEEK: ("DeepSeek-V3.1",),
}


def test_each_calibration_has_its_recorded_phases_and_each_model_its_rules() -> None:
    lines = []
    for release, changes in CASES:
        wish = replace(WISH, **changes)
        lines += ["", f"{release} {changes}"]
        for phase in phases(wish, scripts(release), rules_for(wish.name, release), PLACES, "py"):
            lines += [f"{phase.name}: {shlex.join(phase.argv)}", f"  {dict(phase.env)}"]
    for release, names in NAMED.items():
        made = calibration(release)
        parts = {each.name: getattr(made, each.name) for each in fields(made)}
        lines += ["", str({**parts, "rules": None})]
        for name in names:
            rules = rules_for(name, release)
            words = f"{rules.measure_words} {rules.quantise_words}"
            lines += ["", f"{release} {name} {dict(rules.env)} {words}"]
            lines += [json.dumps(rules.quant_config("/stem"))]
            lines += [json.dumps(rules.measure_config("/stem"))]
    golden("fp8-phases.txt", "\n".join(lines[1:]) + "\n")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dataset", ["/d/set.pkl", "/d/pile"])
def test_only_options_that_a_release_has(release: str, dataset: str) -> None:
    if release == "1.21" and not dataset.endswith(".pkl"):
        return
    wish = replace(WISH, dataset=dataset, experts=True, eager=True, samples=5)
    made = [
        phase
        for name in ("deepseek-x", "granite-4.0-h-small")
        for phase in phases(wish, scripts(release), rules_for(name, release), PLACES, "py")
    ]
    for phase in made:
        step = int(Path(phase.argv[1]).name.split("-")[1])
        said = {word for word in phase.argv if word.startswith("--")}
        assert said <= set(OPTIONS[release][step])


def test_the_words_of_deepseek_r1_are_those_of_its_script(tmp_path: Path) -> None:
    folder = write_scripts(tmp_path / "scripts", DEEPSEEK)
    wish = CalibrationRequest(
        "/m/DeepSeek-V3.1-G2", "DeepSeek-V3.1", 8, "g2", "NeelNanda/pile-10k", 1, 5000, experts=True
    )
    rules = rules_for(wish.name, DEEPSEEK)
    (only,) = phases(wish, read_scripts(folder, calibration(DEEPSEEK)), rules, PLACES, "/py")
    # scripts/run_inc_calib.sh, and --nprompts of the README's line for this model
    wanted = (
        f"/py {folder}/run_example_tp.py --model /m/DeepSeek-V3.1-G2 --tokenizer "
        "/m/DeepSeek-V3.1-G2 --tp_size 8"
    )
    wanted += (
        " --ep_size 8 --nprompts 5000 --osl 32 --max_num_seqs 1 --max_model_len 2048 --dataset pile"
    )
    assert (only.name, only.argv) == ("measure", tuple(wanted.split()))
    config = "/out/work/maxabs_measure_g2.json"
    assert only.env == {**rules.env, "QUANT_CONFIG": config}
    assert {word for word in only.argv if word.startswith("--")} <= set(_EXAMPLE)
    # what serves it is what serves the published measurements
    profile = profiles.find("deepseek-r1")
    published = profile.measurements[0].quantisation
    assert rules.quant_config("/stem") == {**published, "dump_stats_path": "/stem"}
    (folder / "run_example_tp.py").unlink()
    with pytest.raises(LaunchError) as refused:
        read_scripts(folder, calibration(DEEPSEEK))
    assert "git clone -b deepseek_r1 https://github.com/HabanaAI/vllm-fork" in str(refused.value)
    assert "--scripts vllm-fork/scripts" in str(refused.value)


def test_a_record_counts_for_the_same_inputs_only(tmp_path: Path) -> None:
    now = about(WISH, scripts("1.22"), "1.22")
    assert now == {**asdict(WISH), "release": "1.22", "scripts": "/s"}
    out = tmp_path / "far" / "out"
    assert read_done(out, now) == Done(now, (), False)
    done = Done(now, ("dataset", "measure"), True)
    write_done(out, done)
    assert [path.name for path in out.iterdir()] == [RECORD]
    assert read_done(out, now) == done
    other = {**now, "release": "1.21"}
    assert read_done(out, other) == Done(other)
    document = json.loads((out / RECORD).read_text())
    assert document["schema"] == 1
    for broken in ("", "{}", "[]", '{"about": 1, "phases": 1, "whole": true}'):
        (out / RECORD).write_text(broken)
        assert read_done(out, now) == Done(now)
