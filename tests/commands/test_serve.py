"""The installed command against the trivial engine: what a user sees, what the shell gets, what
is left behind."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psutil
import pytest

from tests.support.cli import called
from tests.support.local_hub import Hub
from tests.support.machines import link_tree
from tests.support.processes import free_port, living, pids, trivial_python
from tests.support.serve import Gaudi, gaudi, machine, model, ready_lines
from tests.support.waiting import GENEROUS, until, unused_port

__all__ = ["free_port", "gaudi", "machine", "model", "pids", "trivial_python"]


def test_serve_says_when_it_answers_and_ends_on_ctrl_c(
    gaudi: Gaudi, model: Path, free_port: int, pids: Path
) -> None:
    launch = ("-w", str(model), "-n", "4", "-p", str(free_port), "-i", "64,500", "-o", "8,90")
    process = gaudi.start(*launch, "--name", "small")
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after ") and lines[0].endswith(
        f"answers at http://127.0.0.1:{free_port}\n"
    )
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{free_port}/v1/models") as response:
        assert json.load(response)["data"][0]["id"] == str(model)
    folder = gaudi.state / "gaudi-launch" / "services" / "small"
    state = json.loads((folder / "state.json").read_text())
    assert (state["phase"], state["modules"]) == ("ready", [0, 1, 2, 3])
    assert json.loads((folder / "plan.json").read_text())["modules"] == [0, 1, 2, 3]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130
    assert lines[1] == "  chat: gaudi-launch chat small\n"
    assert "curl --noproxy" in lines[2] and str(folder / "engine.log") in lines[3]
    assert err.splitlines()[-1] == "Stopped; no process remains."
    assert "Traceback" not in err
    predicted = next(line for line in err.splitlines() if "Predicted: " in line)
    planned = called(gaudi.environment, "plan", "--python", str(gaudi.python), *launch)[1]
    assert predicted.partition("Predicted: ")[2] in " ".join(planned.split())
    assert json.loads((folder / "state.json").read_text())["phase"] == "stopped"
    assert living(pids) == []


def test_a_killed_launcher_takes_its_engine_with_it(
    gaudi: Gaudi, model: Path, free_port: int, pids: Path
) -> None:
    process = gaudi.start("-w", str(model), "-p", str(free_port))
    ready_lines(process)
    first = int(pids.read_text().split()[0])
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    until(lambda: first not in living(pids), "the engine's end")
    # the trivial engine forgets its children when it is asked to end; a real one ends its workers
    for other in family:
        with contextlib.suppress(psutil.Error):
            other.kill()
    psutil.wait_procs(family, timeout=GENEROUS)


def test_an_engine_that_dies_is_exit_4_with_its_cause(
    gaudi: Gaudi, model: Path, free_port: int
) -> None:
    code, out, err = gaudi.run("-w", str(model), "-p", str(free_port), "--quiet", do="oom")
    assert (code, out) == (4, "")
    assert "likely cause: The card ran out of memory while graphs were warmed up" in err
    assert f"  $ gaudi-launch inspect {model}" in err.splitlines()
    # the diagnosis ends the screen, and shows the line that it was taken from
    assert err.splitlines()[-1] == f"  $ gaudi-launch inspect {model}"
    assert any(
        "PT_DEVMEM Allocation failed" in line
        for line in err.splitlines()
        if line.startswith("  > ")
    )
    assert "engine.log" in err


def test_the_port_is_checked_before_anything_starts(gaudi: Gaudi, model: Path, pids: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = gaudi.run("-w", str(model), "-p", str(taken.getsockname()[1]))
    assert code == 3 and "is in use" in err and not pids.exists()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("-w", "/no/such/folder"), 5, "it is not a local folder"),
        (("-w", "MODEL", "-n", "9"), 3, "9"),
        (("-w", "MODEL", "-n", "3", "-m", "0,1"), 2, "0,1"),
        (("-w", "MODEL", "-n", "0"), 2, "-n is '0'"),
        (("-w", "MODEL", "--name", "a/b"), 2, "not a valid service name"),
        (("-w", "MODEL", "--engine", "vllm-fork@1.22"), 3, "but the plan is for vllm-fork@1.22"),
        (("-w", "MODEL", "-i", "9,3"), 2, "MIN,MAX"),
        ((), 2, "No model was given"),
    ],
)
def test_refusals_start_nothing(
    gaudi: Gaudi, model: Path, pids: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    asked = [str(model) if word == "MODEL" else word for word in words]
    got, out, err = gaudi.run(*asked)
    assert (got, out) == (code, "") and sentence in err
    # a list of what is left to do has lines of its own
    assert len(err.splitlines()) == 1 or "yet: 1 step" in err
    assert "Traceback" not in err
    assert not pids.exists() and not (gaudi.state / "gaudi-launch" / "services").exists()


def test_an_interpreter_without_an_engine_is_exit_3(gaudi: Gaudi, model: Path) -> None:
    gaudi.python = Path(sys.executable)
    code, _, err = gaudi.run("-w", str(model), "--engine", "vllm-fork@1.21")
    assert code == 3 and "No engine was found" in err


def test_weights_that_are_not_whole_are_exit_5(gaudi: Gaudi, model: Path) -> None:
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    code, _, err = gaudi.run("-w", str(model))
    assert code == 5 and "2 files missing" in err


def test_a_machine_that_cannot_is_refused_by_the_doctor(
    gaudi: Gaudi, model: Path, machine: Path, free_port: int, pids: Path
) -> None:
    shutil.rmtree(machine)
    link_tree("hls2+bad-tuning", machine)
    process = subprocess.run(
        [
            *(sys.executable, "-m", "gaudi_launch", "serve", "--python", str(gaudi.python)),
            *("-w", str(model), "-p", str(free_port)),
        ],
        env=gaudi.environment,
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        check=False,
    )
    assert (process.returncode, process.stdout) == (3, "") and not pids.exists()
    assert "memory.hugepages" in process.stderr and "--no-doctor" in process.stderr


def test_a_hub_id_is_fetched_once_and_served_by_its_name(
    gaudi: Gaudi, model: Path, free_port: int, tmp_path: Path
) -> None:
    weights = struct.pack("<Q", 2) + b"{}"
    files = {"config.json": (model / "config.json").read_bytes(), "model.safetensors": weights}
    files["tokenizer.json"] = b"{}"
    with Hub(files, repo="me/small") as running:
        gaudi.environment |= {**running.environment(), "HF_HOME": str(tmp_path / "hf")}
        for _ in range(2):
            process = gaudi.start("-w", "me/small", "-p", str(free_port))
            assert "me/small answers at" in ready_lines(process)[0]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=GENEROUS)
        # its header for the plan, and the file: both once
        assert [name for name, _ in running.asked].count("model.safetensors") == 2


def test_a_secret_reaches_the_engine_by_its_variable_only(
    gaudi: Gaudi, model: Path, free_port: int
) -> None:
    secrets = ("--api-key", "s3cret-key", "--hf-token", "s3cret-token")
    process = gaudi.start("-w", str(model), "-p", str(free_port), "--name", "k", "--", *secrets)
    lines = ready_lines(process)
    state = json.loads((gaudi.state / "gaudi-launch/services/k/state.json").read_text())
    assert b"s3cret" not in Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    variables = Path(f"/proc/{state['pid']}/environ").read_bytes().split(b"\0")
    assert {b"VLLM_API_KEY=s3cret-key", b"HF_TOKEN=s3cret-token"} <= {*variables}
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=GENEROUS)
    written = [
        path.read_text(errors="replace") for path in gaudi.state.rglob("*") if path.is_file()
    ]
    assert not any("s3cret" in text for text in [*lines, out, err, *written])


def test_two_launches_race_for_the_last_four_cards(
    gaudi: Gaudi, model: Path, machine: Path, pids: Path
) -> None:
    shutil.rmtree(machine)
    link_tree("hls2+busy=4,5,6,7", machine)
    both = [gaudi.start("-w", str(model), "-n", "4", "-p", str(unused_port())) for _ in range(2)]
    until(lambda: any(process.poll() is not None for process in both), "the end of the second")
    losers = [process for process in both if process.poll() is not None]
    assert len(losers) == 1
    _, err = losers[0].communicate()
    assert losers[0].returncode == 3 and "Traceback" not in err
    winner = next(process for process in both if process is not losers[0])
    assert ready_lines(winner)[0].startswith("Ready after ")
    winner.send_signal(signal.SIGINT)
    winner.communicate(timeout=GENEROUS)
    assert winner.returncode == 130 and living(pids) == []
