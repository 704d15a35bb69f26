"""The installed command against the trivial engine: what a user sees, what the shell gets, what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psutil
import pytest

from gaudi_launch.host.simulated import write_tree
from tests.models.local_hub import Hub
from tests.services.conftest import free_port, living, pids, trivial_python
from tests.waiting import GENEROUS, until, unused_port

__all__ = ["free_port", "pids", "trivial_python"]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "hidden_size": 256,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    write_tree("hls2", folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "models" / "Small")


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


class Gaudi:
    """Runs the command as a user with a machine of their own."""

    def __init__(self, tmp_path: Path, machine: Path, python: Path, pids: Path) -> None:
        self.state = tmp_path / "state"
        self.environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("VLLM_", "HABANA_", "PT_HPU", "LC_", "LANG"))
            },
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "GAUDI_LAUNCH_ROOT": str(machine),
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "TRIVIAL_PIDS": str(pids),
        }
        self.python = python
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *words: str, do: str = "") -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "gaudi_launch", "serve", "--no-doctor", "--python", str(self.python), *words]
        process = subprocess.Popen(
            argv,
            env={**self.environment, "TRIVIAL_DO": do},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str, do: str = "") -> tuple[int, str, str]:
        process = self.start(*words, do=do)
        out, err = process.communicate(timeout=GENEROUS)
        return process.returncode, out, err


@pytest.fixture
def gaudi(tmp_path: Path, machine: Path, trivial_python: Path, pids: Path) -> Iterator[Gaudi]:
    user = Gaudi(tmp_path, machine, trivial_python, pids)
    yield user
    for process in user.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready_lines(process: subprocess.Popen[str]) -> list[str]:
    """What is printed once it answers: where, how to ask, the log, how to stop."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(4)]


def test_serve_says_when_it_answers_and_ends_on_ctrl_c(
    gaudi: Gaudi, model: Path, free_port: int, pids: Path
) -> None:
    process = gaudi.start("-w", str(model), "-n", "4", "-p", str(free_port), "--name", "small")
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after ") and lines[0].endswith(f"answers at http://127.0.0.1:{free_port}\n")
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{free_port}/v1/models") as response:
        assert json.load(response)["data"][0]["id"] == str(model)
    folder = gaudi.state / "gaudi-launch" / "services" / "small"
    state = json.loads((folder / "state.json").read_text())
    assert (state["phase"], state["modules"]) == ("ready", [0, 1, 2, 3])
    assert json.loads((folder / "plan.json").read_text())["modules"] == [0, 1, 2, 3]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130
    assert "curl --noproxy" in lines[1] and str(folder / "engine.log") in lines[2]
    assert err.splitlines()[-1] == "Stopped; nothing is left behind."
    assert "Traceback" not in err
    assert json.loads((folder / "state.json").read_text())["phase"] == "stopped"
    assert living(pids) == []


def test_a_killed_launcher_takes_its_engine_with_it(gaudi: Gaudi, model: Path, free_port: int, pids: Path) -> None:
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


def test_an_engine_that_dies_is_exit_4_with_its_cause(gaudi: Gaudi, model: Path, free_port: int) -> None:
    code, out, err = gaudi.run("-w", str(model), "-p", str(free_port), "--quiet", do="oom")
    assert (code, out) == (4, "")
    assert "likely cause: The card ran out of memory while graphs were warmed up" in err
    assert f"  $ gaudi-launch fit {model}" in err.splitlines()
    assert "PT_DEVMEM Allocation failed" in err.splitlines()[-1]
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
        (("-w", "/no/such/folder"), 5, "does not exist"),
        (("-w", "MODEL", "-n", "9"), 3, "9"),
        (("-w", "MODEL", "-n", "3", "-m", "0,1"), 2, "0,1"),
        (("-w", "MODEL", "-n", "0"), 2, "-n is '0'"),
        (("-w", "MODEL", "--name", "a/b"), 2, "no name for a service"),
        (("-w", "MODEL", "--engine", "vllm-fork@1.22"), 3, "but the plan is for vllm-fork@1.22"),
        (("-w", "MODEL", "-i", "9,3"), 2, "least,most"),
        ((), 2, "No model was named"),
    ],
)
def test_refusals_start_nothing(
    gaudi: Gaudi, model: Path, pids: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    asked = [str(model) if word == "MODEL" else word for word in words]
    got, out, err = gaudi.run(*asked)
    assert (got, out) == (code, "") and sentence in err
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
    assert not pids.exists() and not (gaudi.state / "gaudi-launch" / "services").exists()


def test_an_interpreter_without_an_engine_is_exit_3(gaudi: Gaudi, model: Path) -> None:
    gaudi.python = Path(sys.executable)
    code, _, err = gaudi.run("-w", str(model), "--engine", "vllm-fork@1.21")
    assert code == 3 and "No engine was found" in err


def test_weights_that_are_not_whole_are_exit_5(gaudi: Gaudi, model: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    code, _, err = gaudi.run("-w", str(model))
    assert code == 5 and "2 weight files are missing" in err


def test_a_machine_that_cannot_is_refused_by_the_doctor(
    gaudi: Gaudi, model: Path, machine: Path, free_port: int, pids: Path
) -> None:
    shutil.rmtree(machine)
    write_tree("hls2+bad-tuning", machine)
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "gaudi_launch",
            "serve",
            "--python",
            str(gaudi.python),
            "-w",
            str(model),
            "-p",
            str(free_port),
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
    with Hub(files, repo="me/small") as running:
        gaudi.environment |= {**running.environment(), "HF_HOME": str(tmp_path / "hf")}
        for _ in range(2):
            process = gaudi.start("-w", "me/small", "-p", str(free_port))
            assert "me/small answers at" in ready_lines(process)[0]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=GENEROUS)
        assert [name for name, _ in running.asked].count("model.safetensors") == 1


def test_an_api_key_never_reaches_a_command_line_or_a_file(gaudi: Gaudi, model: Path, free_port: int) -> None:
    process = gaudi.start("-w", str(model), "-p", str(free_port), "--name", "k", "--", "--api-key", "s3cret")
    lines = ready_lines(process)
    state = json.loads((gaudi.state / "gaudi-launch/services/k/state.json").read_text())
    assert b"s3cret" not in Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=GENEROUS)
    written = [path.read_text(errors="replace") for path in gaudi.state.rglob("*") if path.is_file()]
    assert not any("s3cret" in text for text in [*lines, out, err, *written])


def test_two_launches_race_for_the_last_four_cards(gaudi: Gaudi, model: Path, machine: Path, pids: Path) -> None:
    shutil.rmtree(machine)
    write_tree("hls2+busy=4,5,6,7", machine)
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
