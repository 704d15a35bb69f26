"""The phases of a calibration as words, against the options that the real scripts have, and each
model's rules."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

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


def test_the_words_of_1_22() -> None:
    made = phases(
        replace(WISH, experts=True, eager=True, samples=99),
        scripts("1.22"),
        rules_for("x", "1.22"),
        PLACES,
        "py",
    )
    switches = ("--expert-parallel", "--max-num-prefill-seqs", "1", "--enforce-eager")
    assert [phase.argv for phase in made] == [
        (
            *(
                "py",
                "/s/step-1-prepare-calibration-dataset.py",
                "-m",
                "/m/Qwen3-32B",
                "-d",
                "/d/set.pkl",
            ),
            *("-o", "qwen3-32b", "--max-dataset-samples", "99"),
        ),
        (
            *(
                "py",
                "/s/step-2-measure-scales.py",
                "-m",
                "/m/Qwen3-32B",
                "--tensor-parallel-size",
                "2",
            ),
            *("-d", "qwen3-32b-calibration-dataset.pkl", "--batch-size", "32", *switches),
        ),
        ("py", "/s/step-3-postprocess-measure.py", "-m", "/out/g2/", "-o", "/out/work/fixed/"),
        (
            *(
                "py",
                "/s/step-4-quantize-scales.py",
                "--model",
                "/m/Qwen3-32B",
                "--tensor-parallel-size",
                "2",
            ),
            *switches,
        ),
    ]
    assert [Path(phase.env["QUANT_CONFIG"]).name for phase in made] == [
        *("maxabs_measure_g2.json",) * 3,
        "maxabs_quant_g2.json",
    ]
    assert {phase.env["PT_HPU_ENABLE_LAZY_COLLECTIVES"] for phase in made} == {"true"}


def test_another_data_set_needs_no_first_step() -> None:
    wish = replace(WISH, dataset="/d/pile-10k", cards=1, name="DeepSeek-R1-Distill-Llama-8B")
    made = phases(wish, scripts("1.22"), rules_for("x", "1.22"), PLACES, "py")
    assert [phase.name for phase in made] == ["measure", "postprocess", "quantise"]
    assert made[0].argv[7:] == (
        *("/d/pile-10k", "--batch-size", "32", "--max-dataset-samples", "512"),
        *(
            "--max-tokens",
            "32",
            "--auto-process-dataset",
            "--sample-len",
            "1024",
            "--max-model-len",
            "2048",
        ),
        *("--max-num-prefill-seqs", "1"),
    )
    assert made[1].argv[-1] == "--deepseek"
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" not in made[0].env


def test_the_plugin_puts_the_experts_of_all_cards_together() -> None:
    wish = replace(WISH, name="Qwen3-30B-A3B", experts=True)
    made = phases(
        wish, scripts("vllm-gaudi"), rules_for("qwen3-30b-a3b", "vllm-gaudi"), PLACES, "py"
    )
    steps = " ".join(phase.name for phase in made)
    assert steps == "dataset measure postprocess unify expand quantise"
    assert [phase.argv[1:] for phase in made[3:5]] == [
        (
            *(
                "/s/step-5-unify_measurements.py",
                "-r",
                "1",
                "-m",
                "/out/g2/",
                "-o",
                "/out/work/unified/",
            ),
            *("-u", "-s"),
        ),
        (
            "/s/step-6-expand-measurements.py",
            "-m",
            "/out/work/unified/",
            "-o",
            "/out/work/expanded/",
            "-w",
            "2",
        ),
    ]
    # one card has all experts; a dense model has none
    for other in (replace(wish, cards=1), replace(wish, experts=False)):
        names = [
            p.name
            for p in phases(
                other, scripts("vllm-gaudi"), rules_for("x", "vllm-gaudi"), PLACES, "py"
            )
        ]
        assert names == ["dataset", "measure", "postprocess", "quantise"]


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


GATE = r"mlp\.gate\b"
BF16 = ("VLLMKVCache", "Matmul", "Softmax")


@pytest.mark.parametrize(
    ("release", "name", "types", "names", "method", "scales", "env"),
    [
        ("1.22", "Llama-3.1-8B", ("Softmax",), ("lm_head", GATE), "maxabs_hw", "scalar", {}),
        ("1.22", "Qwen3-32B", ("Softmax",), ("lm_head", GATE), "maxabs_hw", "scalar", {}),
        (
            *(
                "1.22",
                "Qwen3-30B-A3B",
                BF16,
                ("lm_head", GATE, "fused_scaled_dot_product_attention"),
                "maxabs_hw",
            ),
            *("const", {"VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}),
        ),
        (
            *(
                "1.22",
                "Qwen2-7B-Instruct",
                BF16,
                ("lm_head", GATE, "fused_scaled_dot_product_attention"),
            ),
            *("unit_scale", "scalar", {"VLLM_FP32_SOFTMAX": "true"}),
        ),
        (
            *("1.22", "GLM-4.5", BF16, ("lm_head", GATE), "maxabs_hw", "const"),
            {"VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"},
        ),
        (
            *(
                "1.21",
                "Mixtral-8x7B-v0.1",
                ("Softmax",),
                ("self_attn", "lm_head"),
                "maxabs_hw",
                "scalar",
            ),
            {"PT_HPU_LAZY_MODE": "1", "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"},
        ),
        (
            *("1.21", "QwQ-32B", ("Softmax",), ("lm_head", GATE), "maxabs_hw", "scalar"),
            {
                "PT_HPU_LAZY_MODE": "1",
                "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true",
                "VLLM_FP32_SOFTMAX": "false",
            },
        ),
    ],
)
def test_the_rules_of_a_model(
    release: str,
    name: str,
    types: tuple[str],
    names: tuple[str],
    method: str,
    scales: str,
    env: dict[str, str],
) -> None:
    rules = rules_for(name, release)
    config = rules.quant_config("/stem")
    assert (
        config["blocklist"],
        config["scale_method"],
        config["scale_format"],
        dict(rules.env),
    ) == (
        {"types": list(types), "names": list(names)},
        method,
        scales,
        env,
    )
    assert (config["mode"], config["dump_stats_path"], config["fp8_config"]) == (
        "QUANTIZE",
        "/stem",
        "E4M3",
    )
    assert rules.measure_config("/stem")["mode"] == "MEASURE"


@pytest.mark.parametrize(
    ("name", "blocked", "more", "env"),
    [
        ("Llama-3.1-8B", [], {"scale_format": "scalar"}, {}),
        ("Mixtral-8x7B-v0.1", ["self_attn", "lm_head"], {"scale_format": "CONST"}, {}),
        (
            "DeepSeek-V3",
            ["lm_head", GATE],
            {"scale_format": "scalar"},
            {"VLLM_HPU_FORCE_CHANNEL_FP8": "0"},
        ),
        (
            "granite-4.0-h",
            ["mamba", "self_attn"],
            {"scale_format": "scalar"},
            {"VLLM_CONTIGUOUS_PA": "false"},
        ),
    ],
)
def test_the_rules_of_the_plugin(
    name: str, blocked: list[str], more: dict[str, str], env: dict[str, str]
) -> None:
    rules = rules_for(name, "vllm-gaudi")
    lists = {"allowlist": {"types": [], "names": []}, "blocklist": {"types": [], "names": blocked}}
    common = {"observer": "maxabs", **lists, "dump_stats_path": "/stem"}
    assert rules.quant_config("/stem") == {
        "mode": "QUANTIZE",
        "scale_method": "maxabs_hw",
        **common,
        **more,
    }
    assert rules.measure_config("/stem") == {
        **{
            "method": "HOOKS",
            "mode": "MEASURE",
            "quantize_weight": False,
            "calibration_sample_interval": 1,
        },
        **common,
    }
    assert rules.env == env
    small = name.startswith("granite-4")
    assert rules.measure_words == (("--gpu-memory-utilization", "0.1") if small else ())


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
    buckets = {name: value for name, value in only.env.items() if "BUCKET" in name}
    assert buckets == {
        "VLLM_PROMPT_BS_BUCKET_MIN": "1",
        "VLLM_PROMPT_BS_BUCKET_MAX": "1",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "512",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_DECODE_BS_BUCKET_MIN": "1",
        "VLLM_DECODE_BS_BUCKET_MAX": "1",
    }
    assert {name: value for name, value in only.env.items() if "BUCKET" not in name} == {
        "PT_HPU_LAZY_MODE": "1",
        "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_ENABLE_RUNTIME_DEQUANT": "1",
        "VLLM_REQUANT_FP8_INC": "1",
        "VLLM_MOE_N_SLICE": "1",
        "QUANT_CONFIG": "/out/work/maxabs_measure_g2.json",
    }
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


@pytest.mark.parametrize("dataset", ["/d/pile-10k", "/d/set.pkl"])
def test_the_batch_is_stated_once(dataset: str) -> None:
    """A second one would win over the user's."""
    wish = replace(WISH, dataset=dataset, batch=8)
    made = phases(wish, scripts("1.22"), rules_for("Qwen3-32B", "1.22"), PLACES, "p")
    words = next(phase.argv for phase in made if phase.name == "measure")
    assert words.count("--batch-size") == 1
    assert words[words.index("--batch-size") + 1] == "8"
