"""One command from nothing to a ready engine: weights from a hub on this machine, converted,
measured, served."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.model_setup import convert
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.models.fp8.arithmetic import conversion_table
from tests.support.cli import called
from tests.support.local_hub import Hub
from tests.support.model_files import FILES, SHARDS, WEIGHT
from tests.support.processes import free_port, pids, trivial_python
from tests.support.refusals import refused
from tests.support.serve import Gaudi, machine, ready_lines
from tests.support.shards import read_shard
from tests.support.waiting import GENEROUS

__all__ = ["free_port", "machine", "pids", "trivial_python"]

R1, MEASURED = "deepseek-ai/DeepSeek-R1-0528", "Yi30/ds-r1-0528-default-pile-g2-0529"


MEASUREMENTS = {
    f"inc_measure_output_hooks_maxabs_{rank}_8{end}": b"numbers"
    for rank in range(8)
    for end in (".json", ".npz", "_mod_list.json")
}


class User(Gaudi):
    """A user whose hub is on this machine and whose engine is deepseek_r1."""

    def use(self, hub: Hub, kind: str = "deepseek_r1") -> None:
        self.environment |= {**hub.environment(), "TRIVIAL_KIND": kind}

    def call(self, command: str, *words: str) -> tuple[int, str, str]:
        return called(self.environment, command, "--python", str(self.python), *words)


@pytest.fixture
def user(tmp_path: Path, machine: Path, trivial_python: Path, pids: Path) -> Iterator[User]:
    one = User(tmp_path, machine, trivial_python, pids)
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "https_proxy"):
        one.environment.pop(name, None)
    one.environment |= {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HF_HOME": str(tmp_path / "hf"),
        "MODELSCOPE_CACHE": str(tmp_path / "ms"),
    }
    yield one
    for process in one.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def small_profile(tmp_path: Path) -> None:
    """The user's own profile in place of the shipped one: this test's disk has no 1.5 TB."""
    document = yaml.safe_load((paths.profiles_dir() / "models" / "deepseek-r1.yaml").read_text())
    document["architecture"]["parameters"] = 1000
    document["serving"]["disk_gb"] = 1
    folder = tmp_path / "config" / "gaudi-launch" / "profiles"
    folder.mkdir(parents=True)
    (folder / "deepseek-r1.yaml").write_text(yaml.safe_dump(document))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({}, repo="no/body", others={R1: FILES, MEASURED: MEASUREMENTS}) as running:
        yield running


WORDS = ("-w", R1, "-n", "8", "-q", "--trust-remote-code")


def plan_of(user: User, *words: str) -> dict[str, Any]:
    code, out, err = user.call("plan", *words, "--json")
    assert code == 0, out + err
    found: dict[str, Any] = json.loads(out)
    return found


def states(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["name"], step["state"]) for step in plan["steps"]]


@pytest.mark.usefixtures("small_profile")
def test_deepseek_r1_in_one_command(user: User, hub: Hub, free_port: int, tmp_path: Path) -> None:
    user.use(hub)
    data = tmp_path / "data" / "gaudi-launch"
    planned = plan_of(user, *WORDS, "-p", str(free_port))
    to_do = [("pull", "to_do"), ("convert", "to_do"), ("measurements", "to_do"), ("engine", "done")]
    assert states(planned) == [("disk", "done"), *to_do]
    assert (hub.asked, data.exists()) == ([], False)  # plan only looks
    # and says, before anything is fetched, what serve will ask for
    bare = plan_of(user, *WORDS[:-1])
    assert states(bare) == states(planned)
    assert "plan.remote_code" in [warning["id"] for warning in bare["warnings"]]
    assert "plan.remote_code" not in [warning["id"] for warning in planned["warnings"]]

    process = user.start(*WORDS, "-p", str(free_port), "--name", "r1")
    assert ready_lines(process)[0].startswith("Ready after ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130, err
    for number, word in enumerate(("download", "convert", "download the measurements"), 1):
        assert f"Step {number}/3: {word}" in err

    weights, converted = data / "models" / R1, data / "models" / f"{R1}-G2"
    assert {name: (weights / name).read_bytes() for name in SHARDS} == SHARDS
    for number, name in enumerate(SHARDS, 1):
        assert read_shard(converted / name) == {
            WEIGHT: ("F8_E4M3", conversion_table().tobytes()),
            f"{WEIGHT}_scale_inv": (
                "F32",
                (np.float32(number / 10) * np.float32(448) / np.float32(240)).tobytes(),
            ),
        }
    assert (converted / "configuration_deepseek.py").is_file()
    quant = data / "measurements" / MEASURED / "maxabs_quant_g2.json"
    assert json.loads(quant.read_text())["dump_stats_path"] == str(
        quant.parent / "inc_measure_output"
    )
    sent = json.loads((user.state / "gaudi-launch" / "services" / "r1" / "plan.json").read_text())
    assert sent["argv"][sent["argv"].index("--model") + 1] == str(converted)
    assert sent["argv"][sent["argv"].index("--served-model-name") + 1] == R1
    assert sent["env"]["QUANT_CONFIG"] == str(quant)
    # plan said the same before anything was there
    assert (planned["env"]["QUANT_CONFIG"], planned["argv"]) == (str(quant), sent["argv"])

    hub.asked.clear()
    assert {state for _, state in states(plan_of(user, *WORDS))} == {"done"}
    # the source may go once it is converted
    shutil.rmtree(weights)
    stale = quant.with_name(
        "inc_measure_output_hooks_maxabs_ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2_0_8.npz"
    )
    stale.write_bytes(b"of another setting")
    process = user.start(*WORDS, "-p", str(free_port), "--name", "r1")
    assert ready_lines(process)[0].startswith("Ready after ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert "Step" not in err
    assert (hub.asked, stale.exists(), weights.exists()) == ([], False, False)


@pytest.mark.usefixtures("small_profile")
def test_measurements_that_cannot_be_used_are_named(user: User, tmp_path: Path) -> None:
    quant = tmp_path / "data/gaudi-launch/measurements" / MEASURED / "maxabs_quant_g2.json"
    lost = "inc_measure_output_hooks_maxabs_7_8.npz"
    few = {name: content for name, content in MEASUREMENTS.items() if "_7_8" not in name}
    missing = {"path": str(quant), "first": str(quant.with_name(lost)), "count": 1, "cards": 8}
    where = {"path": str(quant.parent), "why": os.strerror(errno.EISDIR)}
    with Hub({}, repo="no/body", others={R1: FILES, MEASURED: few}) as hub:
        user.use(hub)
        code, _, err = user.run(*WORDS)
        assert (code, err.splitlines()[-1]) == (
            ExitCode.MODEL,
            f"gaudi-launch: {text('quant.measurements_missing', 'en', model=MEASURED, **missing)}",
        )
        quant.unlink()
        quant.mkdir()
        code, _, err = user.run(*WORDS)
        assert (code, err.splitlines()[-1]) == (
            ExitCode.FAILED,
            f"gaudi-launch: {text('pull.folder', 'en', **where)}",
        )


def test_a_conversion_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in FILES.items():
        (source / name).write_bytes(content)
    out = tmp_path / "out"
    (out / "config.json").mkdir(parents=True)
    where = {"path": str(out / "config.json.part"), "why": os.strerror(errno.EISDIR)}
    with refused("fp8.io", ExitCode.FAILED, **where):
        convert(source, out, 1, Silent(), force=True)


def test_the_disk_is_asked_before_anything_is_fetched(user: User, hub: Hub, tmp_path: Path) -> None:
    user.use(hub)
    # of another machine's disks nothing is known but the need
    elsewhere = plan_of(user, *WORDS, "--machine", "simulated:hls2")["steps"][0]
    assert (elsewhere["name"], elsewhere["state"]) == ("disk", "to_do")
    assert elsewhere["what"].startswith("1500 GB of disk at ") and "free" not in elsewhere["what"]
    free = shutil.disk_usage(tmp_path).free
    if free > 1.5e12:
        pytest.skip("this disk has the room")
    assert states(plan_of(user, *WORDS))[0] == ("disk", "to_do")
    code, _, err = user.run(*WORDS)
    assert (code, hub.asked) == (3, [])
    assert "1500 GB of disk at " in err
    assert not (tmp_path / "data" / "gaudi-launch" / "models").exists()


@pytest.mark.usefixtures("small_profile")
@pytest.mark.parametrize(
    ("kind", "words", "code", "says"),
    [
        ("deepseek_r1", ("-w", R1, "-n", "8", "-q"), 5, "--trust-remote-code"),
        ("1.21", WORDS, 3, "gaudi-launch setup deepseek_r1"),
        ("deepseek_r1", ("-w", R1, "-n", "4", "-q", "--trust-remote-code"), 2, "8"),
        (
            "1.21",
            ("-w", "Qwen/Qwen3-8B", "-n", "1", "-d", "fp8"),
            5,
            "gaudi-launch fp8 calibrate Qwen/Qwen3-8B -n 1",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_fetched(
    kind: str, words: tuple[str, ...], code: int, says: str, user: User, hub: Hub, tmp_path: Path
) -> None:
    user.use(hub, kind)
    found, _, err = user.run(*words)
    assert (found, hub.asked) == (code, []), err
    assert says in err and "Traceback" not in err
    assert not (tmp_path / "data").exists()


def test_a_folder_of_the_user_is_converted_beside_it(user: User, hub: Hub, tmp_path: Path) -> None:
    user.use(hub)
    folder = tmp_path / "DeepSeek-R1"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    plan = plan_of(user, "-w", str(folder), "--trust-remote-code")
    assert states(plan) == [("disk", "done"), ("convert", "to_do"), ("engine", "done")]
    assert plan["argv"][plan["argv"].index("--model") + 1] == f"{folder}-G2"
    assert plan["model"]["layers"] == 61
    elsewhere = plan_of(user, "-w", "/not/here/DeepSeek-R1", "--trust-remote-code")
    assert (elsewhere["steps"], "/not/here/DeepSeek-R1" in elsewhere["argv"]) == ([], True)
    gaudi3 = ("--machine", "simulated:gaudi3-oam")
    code, out, _ = user.call("plan", "-w", str(folder), "--trust-remote-code", "--json", *gaudi3)
    assert code == 3 and json.loads(out)["error"]["id"] == "plan.deepseek_platform"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("DeepSeek")) == [
        "DeepSeek-R1"
    ]


@pytest.mark.parametrize(
    ("engine", "place", "other"),
    [("vllm-fork@1.21", "g2-n1", "g2-n1-vllm-gaudi"), ("vllm-gaudi", "g2-n1-vllm-gaudi", "g2-n1")],
)
def test_fp8_finds_what_was_calibrated_here(
    user: User, hub: Hub, tmp_path: Path, engine: str, place: str, other: str
) -> None:
    user.use(hub, "1.21")
    words = ("-w", "Qwen/Qwen3-8B", "-n", "1", "-d", "fp8", "--engine", engine)
    missing = plan_of(user, *words)
    assert "quant.none" in [each["id"] for each in missing["todo"]]
    assert "QUANT_CONFIG" not in missing["env"]
    root = tmp_path / "data" / "gaudi-launch" / "measurements" / "calibrated" / "qwen3-8b"
    folder = root / other
    (folder / "g2").mkdir(parents=True)
    document = {
        "mode": "QUANTIZE",
        "dump_stats_path": str(folder / "g2" / "inc_output"),
        "blocklist": {"types": ["VLLMKVCache"]},
    }
    (folder / "maxabs_quant_g2.json").write_text(json.dumps(document))
    (folder / "g2" / "inc_output_hooks_maxabs_0_1.npz").write_bytes(b"x")
    # measured with another family of engines: its modules have other names
    assert "QUANT_CONFIG" not in plan_of(user, *words)["env"]
    folder = folder.rename(root / place)
    (folder / "maxabs_quant_g2.json").write_text(
        json.dumps({**document, "dump_stats_path": str(folder / "g2" / "inc_output")})
    )
    found = plan_of(user, *words)
    assert found["env"]["QUANT_CONFIG"] == str(folder / "maxabs_quant_g2.json")
    assert found["argv"][found["argv"].index("--kv-cache-dtype") + 1] == "auto"
    assert "quant.none" not in [each["id"] for each in found["todo"]]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_file_that_is_not_there_is_a_sentence(user: User, hub: Hub, language: str) -> None:
    user.use(hub, "1.21")
    words = ("-w", "Qwen/Qwen3-8B", "-d", "fp8", "--quant-config", "/no/q.json", "--lang", language)
    code, out, err = user.call("plan", *words)
    # it may be written later: it is on the list of what is to do
    assert (code, err) == (0, "")
    assert "/no/q.json" in out and "quant." not in out
