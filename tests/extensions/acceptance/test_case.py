"""The complete test on simulated servers: planted faults are found and named, a kill resumes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.extensions.acceptance.records import all_steps
from gaudi_launch.extensions.acceptance.steps import pair_rounds
from tests.support.card_tools import write_server
from tests.support.waiting import GENEROUS, until

ROOT = os.geteuid() == 0
STEPS = tuple(all_steps().values())
QUAL = {each.name for each in STEPS if each.name.startswith("qual_")}
# a served model needs a real engine: tests/e2e and scripts/acceptance/accept.py
ARGUMENTS = ("doctor", "--deep", "--json", "--skip", "served_small,served_model")
ENGINE = "python3 -m vllm.entrypoints.openai.api_server"
COUNTERS = "sys/class/accel/accel0/device/hard_reset_cnt"

# server, faults, steps that run, {step: status} of what does not pass, texts that a note has
CASES: list[tuple[str, dict[str, Any], str, dict[str, str], tuple[str, ...]]] = [
    (
        *("hls2", {"cards": {"3": {"matrix": 0.7}}}, "matrix_bf16,sustained"),
        {"matrix_bf16": "fail", "sustained": "fail"},
        ("3: 287.3 TFLOPS (66 % of the peak); expected at least 389.3 (90 %).", "30 % below"),
    ),
    (
        *("gaudi3-oam", {"cards": {"6": {"memory": 0.5}}}, "memory_rate,matrix_bf16"),
        {"memory_rate": "fail"},
        ("6: 1468 GB/s (40 % of the peak); expected at least 2569 (70 %).",),
    ),
    (
        *("hls2", {"cards": {"1": {"matrix": 0.94}}}, "matrix_bf16", {"matrix_bf16": "warn"}),
        ("1: 385.8 TFLOPS (89 % of the peak), slower than 389.3 (90 %).", "6 % below"),
    ),
    (
        "hls2",
        {"pairs": {"2-5": 2 / 3}, "hl_smi": {"2": {"ports": {"5": "DOWN"}}}},
        "checks,all_reduce,all_reduce_pairs,all_reduce_fours",
        {"checks": "fail", "all_reduce": "fail", "all_reduce_pairs": "fail"},
        ("cards.links: ", "module 2", "2-5: 24.5 GB/s (65 % of the peak)"),
    ),
    (
        *("gaudi3-oam", {"pairs": {"0-1": 0.6}}, "all_reduce_fours"),
        {"all_reduce_fours": "fail"},
        ("0-1-2-3: 131.9 GB/s (59 % of the peak)",),
    ),
    (
        *("hls2", {"hl_smi": {"4": {"spi": "hl-gaudi2-1.20.1-fw-58.2"}}}, "firmware"),
        {"firmware": "fail"},
        ("module 4: firmware 1.20.1",),
    ),
    (
        *("hls2", {"hl_smi": {"7": {"memory.total": 49152}}}, "checks,memory_size"),
        {"checks": "warn", "memory_size": "fail"},
        ("7: 49152 MiB (50 % of the peak)",),
    ),
    (
        *("hls2", {"cards": {"0": {"memory": 1.2}}}, "memory_rate", {"memory_rate": "wrong"}),
        ("No card is faster than its peak",),
    ),
    (
        *("hls2", {"answers": {"2": {"matrix_bf16": {"digest": "b"}}}}, "matrix_bf16"),
        {"matrix_bf16": "fail"},
        ("2: the result of the same multiplication differs",),
    ),
    (
        *("hls2", {"answers": {"0": {"memory_fill": {"wrong_values": 3}}}}, "memory_fill"),
        {"memory_fill": "fail"},
        ("0: 3 values were read back wrong.",),
    ),
    (
        *("hls2", {"answers": {"0": {"memory_rate": {"compiled_late": 1}}}}, "memory_rate"),
        {"memory_rate": "broken"},
        ("0: graphs were compiled in the timed part.",),
    ),
    (
        *("hls2", {"writes": {"matrix_bf16": {COUNTERS: "2"}}}, "matrix_bf16,events"),
        {"events": "fail"},
        ("module 3: hard_reset_cnt rose by 2 during the test.",),
    ),
    (
        "hls2",
        {"files": {"sys/bus/pci/devices/0000:19:00.0/hwmon/hwmon0/temp1_highest": "106000"}},
        "sustained",
        {"sustained": "warn"},
        ("module 3: 106 C at the highest; limit 105 C (temp1_crit).",),
    ),
    (
        *("hls2", {"sum": "bad"}, "all_reduce", {"all_reduce": "broken"}),
        ("hccl_demo received a wrong sum.",),
    ),
    (
        *("hls2", {"buses": ["0000:19:00.0"]}, "qual_pcie", {"qual_pcie": "broken"}),
        ("hl_qual reports 1 of 8 cards.",) if ROOT else (),
    ),
    (
        *("hls2", {"qual_failed": ["0000:1a:00.0"]}, "qual_hbm", {"qual_hbm": "fail"}),
        ("device : 0000:1a:00.0: hl_qual reports FAILED.",) if ROOT else (),
    ),
]


@pytest.fixture
def server(own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a server this machine, and runs the test on it."""

    def make(capsys: Any, name: str, faults: dict[str, Any], *more: str) -> tuple[int, Any]:
        root = tmp_path / "machine"
        if not root.exists():
            for key, value in write_server(root, name, faults).items():
                monkeypatch.setenv(key, value)
        python = str(root / "engine/python")
        code = run([*ARGUMENTS, "--python", python, *more])
        return code, json.loads(capsys.readouterr().out)

    return make


@pytest.mark.parametrize(("name", "faults", "only", "troubles", "texts"), CASES)
def test_a_planted_fault_is_found_and_named(
    server: Any,
    capsys: pytest.CaptureFixture[str],
    name: str,
    faults: dict[str, Any],
    only: str,
    troubles: dict[str, str],
    texts: tuple[str, ...],
) -> None:
    code, report = server(capsys, name, faults, "--only", only)
    found = {each["name"]: each["status"] for each in report["steps"]}
    if not ROOT and "qual" in only:
        troubles = dict.fromkeys(troubles, "skipped")
    troubled = {name: each for name, each in found.items() if each not in ("pass", "reported")}
    assert (troubled, set(found)) == (troubles, set(only.split(",")))
    failed = 3 * any(each != "warn" for each in troubles.values())
    assert (code, report["exit_code"]) == (failed, failed)
    notes = "\n".join(note["message"] for each in report["steps"] for note in each["notes"])
    assert [text for text in texts if text not in notes] == []


@pytest.mark.parametrize("name", ["hls2", "gaudi3-oam"])
def test_a_sound_server_passes_all_levels(
    server: Any, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, report = server(capsys, name, {}, "--level", "3")
    found = {each["name"]: each["status"] for each in report["steps"]}
    wanted = {each.name: "pass" for each in STEPS if not each.name.startswith("served")}
    wanted |= {"host_to_card": "reported", "compile": "reported"}
    wanted |= {} if ROOT else dict.fromkeys(QUAL, "skipped")
    assert (code, found) == (0, wanted)


def test_cards_in_use_are_left_out_and_named(
    server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = server(capsys, "hls2+busy=3,5", {}, "--only", "matrix_bf16,all_reduce")
    shown = report["steps"][0]["values"], list(report["steps"][1]["values"]), report["left_out"]
    assert code == 0 and list(shown[0]) == report["cards"] == ["0", "1", "2", "4", "6", "7"]
    assert shown[1:] == (["0-1-2-4-6-7"], {"3": f"{ENGINE} (4103)", "5": f"{ENGINE} (4105)"})
    for more in (("-m", "3"), ("-m", "3,5", "-n", "1")):
        code, report = server(capsys, "", {}, "--only", "matrix_bf16", *more)
        assert (code, report["steps"][0]["status"], report["cards"]) == (3, "skipped", [])
    code, report = server(
        capsys, "", {}, "--only", "matrix_bf16,all_reduce", "-m", "6,7", "-n", "1"
    )
    assert [each["status"] for each in report["steps"]] == ["pass", "skipped"]
    assert (code, report["cards"]) == (0, ["6"])


@pytest.mark.parametrize(
    ("more", "id"),
    [
        (("--machine", "simulated:hls2"), "accept.machine"),
        (("--level", "4"), "accept.level"),
        (("--only", "matrix"), "accept.unknown_step"),
        (("-m", "0,9"), "accept.unknown_card"),
        (("--compare", "/none.json"), "accept.unreadable"),
        (("--compare", "a", "--compare", "b"), "doctor.compared"),
    ],
)
def test_wrong_options_are_refused(
    server: Any, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], id: str
) -> None:
    code, report = server(capsys, "hls2", {}, *more)
    assert (code, report["error"]["id"]) == (2, id)


def test_two_runs_are_compared_and_the_file_names_nobody(
    server: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, before = server(capsys, "hls2", {}, "--only", "memory_rate,matrix_bf16,firmware")
    text = Path(before["evidence"]).read_text()
    host = json.loads((tmp_path / "machine/bin/hl-smi.json").read_text())
    secrets = [str(card["serial"]) for card in host["cards"]] + ["10.20.30.40", str(tmp_path)]
    assert [secret for secret in secrets if secret in text] == []
    assert json.loads(text)["files"]["3"]["clk_max_freq_mhz"] == "1650"
    known = tmp_path / "machine/tools.json"
    facts = json.loads(known.read_text())
    known.write_text(json.dumps({**facts, "cards": {"2": {"memory": 0.5}}}))
    _, after = server(capsys, "", {}, "--only", "memory_rate", "--compare", before["evidence"])
    rows = {row["step"]: (row["differs"], row["statuses"]) for row in after["changes"]}
    assert rows == {
        "memory_rate": (True, ["pass", "fail"]),
        "matrix_bf16": (True, ["pass", "-"]),
        "firmware": (True, ["pass", "-"]),
    }
    same = run(["doctor", "--compare", after["evidence"], "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (same, [row["differs"] for row in shown["changes"]]) == (0, [False])


def test_killed_at_drawn_moments_it_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    environment = write_server(tmp_path / "machine", "hls2", seconds=0.3)
    python = str(tmp_path / "machine/engine/python")
    command = [sys.executable, "-m", "gaudi_launch", *ARGUMENTS, "--python", python]
    state = tmp_path / "state"
    environment |= {"XDG_STATE_HOME": str(state), "ACCEPTANCE_TOKEN": str(tmp_path)}
    chance = random.Random(43)
    done = [0]
    record = state / "gaudi-launch/acceptance/run.json"
    for number in range(4):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        begun = time.time()
        while not (record.is_file() and record.stat().st_mtime > begun) and process.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 1.0))
        process.send_signal((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[number % 3])
        process.wait(GENEROUS)
        until(lambda: _has_ended(tmp_path), "the end of all processes", 5)
        done.append(len(json.loads(record.read_text())["results"]))
    assert done == sorted(done) and done[-1] > 0
    finished = subprocess.run(command, env=environment, capture_output=True, timeout=GENEROUS)
    report = json.loads(finished.stdout)
    assert [each["name"] for each in report["steps"]] == [e.name for e in STEPS if e.level == 1]
    until(lambda: _has_ended(tmp_path), "the end of all processes", 5)
    assert (finished.returncode, record.exists()) == (0, False)
    calls = (tmp_path / "machine/tools.json.calls").read_text()
    # no step that was kept ran again: eight cards, three tests, and those that were killed
    assert calls.count("gaudi_card_rates") <= 8 * (3 + 4)


def _has_ended(folder: Path) -> bool:
    """Return True if no process of a run is left, by its environment."""
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.environ().get("ACCEPTANCE_TOKEN") == str(folder):
                return False
    return True


@pytest.mark.parametrize("count", range(2, 9))
def test_every_pair_is_in_one_round_and_no_card_twice_in_it(count: int) -> None:
    rounds = pair_rounds(range(count))
    pairs = [pair for each in rounds for pair in each]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2
    assert all(len({card for pair in each for card in pair}) == 2 * len(each) for each in rounds)
    # no round more than needed: with an odd count one card rests in each
    assert len(rounds) == count - 1 + count % 2
