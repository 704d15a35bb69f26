"""fp8 calibrate as a user runs it, with a stand-in for the engine's interpreter: real processes,
kills, resumption."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import trivial_calibration
from tests.support.calibration_scripts import write_scripts
from tests.support.cli import called
from tests.support.local_hub import Hub
from tests.support.machines import link_tree
from tests.support.model_files import FILES as R1_FILES
from tests.support.processes import is_alive
from tests.support.waiting import GENEROUS, until

PROGRAM = (sys.executable, "-m", "gaudi_launch")
CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "hidden_size": 256,
}


class User:
    def __init__(self, home: Path, release: str = "1.22") -> None:
        self.home, self.calls = home, home / "calls"
        link_tree("hls2", home / "machine")
        write_scripts(
            home / "source" / ("scripts" if release == "deepseek_r1" else "calibration"), release
        )
        self.python = home / "engine-python"
        self.python.write_text(
            f'#!/bin/sh\nexec {sys.executable} {trivial_calibration.__file__} "$@"\n'
        )
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.model = home / "Qwen3-8B"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        self.dataset = home / "set.pkl"
        self.dataset.write_bytes(b"set")
        keep = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HABANA_", "LC_", "LANG", "QUANT", "HF_"))
        }
        self.environment = {
            **keep,
            **{
                f"XDG_{name}_HOME": str(home / name.lower())
                for name in ("DATA", "STATE", "CACHE", "CONFIG")
            },
            "GAUDI_LAUNCH_ROOT": str(home / "machine"),
            "PATH": f"{home / 'machine' / 'bin'}:{os.environ['PATH']}",
            "TRIVIAL_CALLS": str(self.calls),
            "TRIVIAL_SOURCE": str(home / "source"),
            "TRIVIAL_KIND": release,
        }

    @property
    def out(self) -> Path:
        return (
            self.home
            / "data"
            / "gaudi-launch"
            / "measurements"
            / "calibrated"
            / "qwen3-8b"
            / "g2-n2"
        )

    def argv(self, *words: str) -> list[str]:
        begin = ["fp8", "calibrate", str(self.model), "-n", "2"]
        return [*begin, "--python", str(self.python), "--dataset", str(self.dataset), *words]

    def run(self, *words: str, do: str = "") -> tuple[int, str, str]:
        return self.call(*self.argv(*words), do=do)

    def call(self, *argv: str, do: str = "") -> tuple[int, str, str]:
        return called({**self.environment, "TRIVIAL_DO": do}, *argv)

    def plan(self, *words: str) -> dict[str, Any]:
        """Return the plan of a command line."""
        code, out, err = self.call("plan", *words, "--json")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def called(self) -> list[dict[str, Any]]:
        text = self.calls.read_text() if self.calls.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def steps(self) -> list[str]:
        names = [Path(call["words"][0]).name for call in self.called()]
        return [name.split("-")[1] if name.startswith("step-") else name for name in names]


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


NAMES = [f"{rank}_2{end}" for rank in (0, 1) for end in (".json", ".npz")]
EXPECTED = {
    **{f"inc_output_hooks_maxabs_{name}": "measured fixed" for name in NAMES},
    **{f"inc_output_hooks_maxabs_MAXABS_HW_{name}": "scales" for name in NAMES},
}


def test_a_model_that_the_engine_lacks_is_refused_before_anything_and_forced(user: User) -> None:
    config = {**CONFIG, "architectures": ["NoSuchForCausalLM"]}
    (user.model / "config.json").write_text(json.dumps(config))
    code, _, err = user.run()
    assert (code, user.steps()) == (5, [])
    assert "NoSuchForCausalLM" in err
    code, _, err = user.run("--force")
    assert (code, user.steps()) == (0, ["1", "2", "3", "4"])
    assert "--force" in err


def test_the_whole_way_to_fp8(user: User) -> None:
    code, out, err = user.run("--json")
    assert code == 0, err
    quant = user.out / "maxabs_quant_g2.json"
    assert json.loads(out) == {
        "schema": 1,
        "model": str(user.model),
        "quant_config": str(quant),
        "cards": 2,
        "generation": "g2",
        "kv_cache_dtype": "auto",
    }
    assert user.steps() == ["1", "2", "3", "4"]
    assert files(user.out / "g2") == EXPECTED
    assert json.loads(quant.read_text())["dump_stats_path"] == str(user.out / "g2" / "inc_output")
    assert sorted(path.name for path in user.out.iterdir() if not path.name.startswith(".")) == [
        *("calibration.json", "g2", "logs", "maxabs_measure_g2.json", "maxabs_quant_g2.json")
    ]
    assert {call["env"]["HABANA_VISIBLE_MODULES"] for call in user.called()} == {"0,1"}
    assert [line for line in err.splitlines() if line.startswith("Phase")] == [
        "Phase 1/4: prepare the data set",
        "Phase 2/4: measure with the model",
        "Phase 3/4: post-process the measurements",
        "Phase 4/4: quantise once to write the scales",
    ]
    engine = ("--engine", "vllm-fork@1.22")
    planned = user.plan("-w", str(user.model), "-n", "2", "-d", "fp8", *engine)
    assert planned["env"]["QUANT_CONFIG"] == str(quant)
    # a second run has nothing to do; --force has all of it
    assert user.run()[0] == 0
    assert len(user.steps()) == 4
    assert user.run("--force", "--lang", "zh")[0] == 0
    assert len(user.steps()) == 8


def test_experts_with_the_plugin(tmp_path: Path) -> None:
    user = User(tmp_path, "vllm-gaudi")
    config = {**CONFIG, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
    (user.model / "config.json").write_text(json.dumps(config))
    out = user.out.with_name("g2-n2-vllm-gaudi")
    # killed between its phases, it goes on where it was
    code, _, err = user.run(do="die:6")
    assert code == 4 and "expand" in err, err
    code, shown, err = user.run("--json")
    assert code == 0, err
    assert user.steps() == ["1", "2", "3", "5", "6", "6", "4"]
    assert files(out / "g2") == {
        name: content.replace("measured fixed", "measured fixed unified expanded")
        for name, content in EXPECTED.items()
    }
    assert json.loads(shown)["kv_cache_dtype"] == "fp8_inc"


@pytest.mark.parametrize("step", ["1", "2", "3", "4"])
def test_a_phase_that_fails_is_done_again_and_only_that(user: User, step: str) -> None:
    code, out, err = user.run(do=f"die:{step}")
    assert (code, out) == (4, "")
    assert "Device acquire failed" in err and str(user.out / "logs") in err
    assert not (user.out / "maxabs_quant_g2.json").exists()
    assert user.run()[0] == 0
    before = [str(n) for n in range(1, int(step) + 1)]
    assert user.steps() == [*before, *[str(n) for n in range(int(step), 5)]]
    assert files(user.out / "g2") == EXPECTED


def test_a_phase_that_leaves_nothing_is_no_success(user: User) -> None:
    code, _, err = user.run(do="empty:2")
    assert code == 4 and "did not write" in err and "inc_output_hooks_maxabs_0_2.npz" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_the_middle_nothing_lives_on(user: User, number: int) -> None:
    environment = {**user.environment, "TRIVIAL_DO": "hang:2"}
    process = subprocess.Popen(
        [*PROGRAM, *user.argv()], env=environment, stderr=subprocess.PIPE, text=True
    )
    until(lambda: len(user.steps()) == 2, "the second step")
    process.send_signal(number)
    process.communicate(timeout=GENEROUS)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    step = user.called()[-1]["pid"]
    until(lambda: not is_alive(step), "the step's end")
    assert user.run()[0] == 0
    assert user.steps() == ["1", "2", "2", "3", "4"]
    assert files(user.out / "g2") == EXPECTED


def test_two_at_once_is_a_sentence(user: User) -> None:
    environment = {**user.environment, "TRIVIAL_DO": "hang:1"}
    process = subprocess.Popen([*PROGRAM, *user.argv()], env=environment, stderr=subprocess.DEVNULL)
    until(user.steps, "the first step")
    try:
        code, _, err = user.run("-m", "4,5")
        assert code == 1 and f"PID {process.pid}" in err and len(user.steps()) == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(GENEROUS)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--dataset", "/no/set.pkl"), 2, "/no/set.pkl"),
        (("--dataset", "no such thing"), 2, "no such thing"),
        (("-n", "16"), 2, "calibration_multi_node.md"),
        (("-n", "x"), 2, "x"),
        (("-m", "0,0"), 2, "0,0"),
        (("--samples", "0"), 2, "0"),
        (("--scripts", "/no/scripts"), 3, "git clone"),
        (("--python", "/no/python"), 2, "/no/python"),
    ],
)
def test_wrong_input_starts_nothing(
    user: User, words: tuple[str, ...], code: int, says: str
) -> None:
    found, _, err = user.run(*words)
    assert (found, user.steps(), (user.home / "data").exists()) == (code, [], False)
    assert says in err


def test_other_engines_are_told_so(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.environment["TRIVIAL_KIND"] = "1.23"
    code, _, err = user.run()
    assert code == 3 and "vllm-fork@1.23" in err
    assert user.steps() == []


def test_the_older_scripts_read_only_pickles(tmp_path: Path) -> None:
    user = User(tmp_path, "1.21")
    for dataset in ("NeelNanda/pile-10k", ""):
        code, _, err = user.run("--dataset", dataset)
        assert (code, user.steps()) == (2, []) and ".pkl" in err
    assert user.run()[0] == 0
    assert user.steps() == ["1", "2", "3", "4"]


def test_model_and_data_set_from_a_hub(user: User) -> None:
    weights = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": b"\x02\0\0\0\0\0\0\0{}",
    }
    data = {"data/train-00000-of-00001.parquet": b"rows"}
    name = "NeelNanda/pile-10k"
    with Hub({}, repo="no/body", others={"Qwen/Qwen3-8B": weights}, datasets={name: data}) as hub:
        user.environment |= {**hub.environment(), "HF_HOME": str(user.home / "hf")}
        hub_words = ("Qwen/Qwen3-8B", "-n", "2", "--python", str(user.python))
        code, _, err = user.call("fp8", "calibrate", *hub_words)
    assert code == 0, err
    where = user.home / "data" / "gaudi-launch"
    words = user.called()[0]["words"]
    assert user.steps() == ["2", "3", "4"]
    assert words[words.index("-m") + 1] == str(where / "models" / "Qwen" / "Qwen3-8B")
    assert words[words.index("-d") + 1] == str(where / "datasets" / "NeelNanda" / "pile-10k")
    assert (
        where / "datasets" / "NeelNanda" / "pile-10k" / "data" / "train-00000-of-00001.parquet"
    ).is_file()


def test_deepseek_r1_converts_measures_and_serves(tmp_path: Path) -> None:
    user = User(tmp_path, "deepseek_r1")
    folder = tmp_path / "DeepSeek-V3.1"
    folder.mkdir()
    for name, data in R1_FILES.items():
        (folder / name).write_bytes(data)

    def calibrate(*words: str) -> tuple[int, str, str]:
        model = (str(folder), "-n", "8", "--trust-remote-code", "--python", str(user.python))
        return user.call("fp8", "calibrate", *model, *words)

    for option in ("--dataset", "--batch"):
        code, _, err = calibrate(option, "4")
        assert (code, user.steps()) == (2, []) and option in err and "pile-10k" in err
    code, out, err = calibrate("--samples", "16")
    assert code == 0, err
    assert user.steps() == ["run_example_tp.py"]
    words = user.called()[0]["words"]
    converted = f"{folder}-G2"
    assert words[words.index("--model") + 1] == converted
    assert Path(converted, "model.safetensors.index.json").is_file()
    assert words[words.index("--nprompts") + 1] == "16"
    assert f"serve {folder} -n 8 -q" in out
    quant = user.out.parents[1] / "deepseek-v3.1" / "g2-n8-deepseek_r1" / "maxabs_quant_g2.json"
    plan = user.plan("-w", str(folder), "-n", "8", "-q", "--trust-remote-code")
    assert plan["env"]["QUANT_CONFIG"] == str(quant)
    assert plan["argv"][plan["argv"].index("--kv-cache-dtype") + 1] == "fp8_inc"
