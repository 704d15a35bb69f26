"""``serve --engine tgi`` with a stand-in docker: real processes, ports and signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import called
from tests.support.local_hub import Hub
from tests.support.processes import free_port
from tests.support.serve import CONFIG, ready_lines
from tests.support.serve_tgi import IMAGE, User, hurry
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port"]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    made = User(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("words", [(), ("--", "--json-output")])
def test_it_says_when_it_answers_and_ctrl_c_stops_the_container(
    user: User, free_port: int, words: tuple[str, ...]
) -> None:
    process = user.start("-w", "MODEL", "-n", "2", "-p", str(free_port), "--name", "small", *words)
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after ")
    assert lines[0].endswith(f": /models/Small answers at http://127.0.0.1:{free_port}\n")
    assert f"http://127.0.0.1:{free_port}/generate" in lines[2] and '"inputs"' in lines[2]
    (run,) = user.daemon.runs
    assert run.image == IMAGE
    assert run.options["-p"] == [f"127.0.0.1:{free_port}:80"]
    assert run.options["-v"] == [f"{user.model}:/models/Small:ro"]
    assert run.options["--runtime"] == ["habana"]
    assert run.environment.keys() == {"HABANA_VISIBLE_DEVICES"}
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.daemon.living) == (130, [])
    assert err.splitlines()[-1] == "Stopped; no process remains." and "Traceback" not in err
    state = json.loads((user.state / "gaudi-launch/services/small/state.json").read_text())
    assert (state["engine"], state["phase"]) == ("tgi@3.3.5", "stopped")
    names = [phase["name"] for phase in state["phases"]]
    assert names == ["start", "load", "warmup_prompt", "warmup_decode", "ready"]
    assert (state["facts"]["num_blocks"], state["facts"]["warmup_seconds"]) == (5000, 7)
    (measured,) = json.loads((user.state / "gaudi-launch/warmup-times.json").read_text())["warmups"]
    assert (measured["engine"], measured["graphs"], measured["seconds"]) == ("tgi@3.3.5", 4, 7.0)


def test_a_container_deaf_to_sigterm_is_removed(user: User, free_port: int) -> None:
    user.daemon.do = "deaf"
    process = user.start("-w", "MODEL", "-p", str(free_port), "--name", "deaf")
    ready_lines(process)
    hurry(user, process, "deaf")
    assert user.daemon.living == []
    assert user.daemon.asked[-1] == ["rm", "--force", user.daemon.runs[0].name]


def test_a_killed_launcher_stops_its_container(user: User, free_port: int) -> None:
    process = user.start("-w", "MODEL", "-p", str(free_port))
    ready_lines(process)
    process.kill()
    process.communicate()
    until(lambda: user.daemon.living == [], "the container's end")


def test_a_killed_client_is_a_failure_and_leaves_no_container(user: User, free_port: int) -> None:
    process = user.start("-w", "MODEL", "-p", str(free_port), "--name", "k", "--quiet")
    ready_lines(process)
    state = json.loads((user.state / "gaudi-launch/services/k/state.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.daemon.living) == (4, []) and "signal 9" in err


def test_a_shard_that_dies_is_exit_4_with_its_cause(user: User, free_port: int) -> None:
    user.daemon.do = "die"
    code, out, err = user.run("-w", "MODEL", "-p", str(free_port), "--quiet")
    assert (code, out, user.daemon.living) == (4, "", [])
    assert "likely cause" in err and "Graph compile failed" in err


def test_healthy_is_not_enough(user: User, free_port: int) -> None:
    user.daemon.do = "sick"
    words = ("-w", "MODEL", "-p", str(free_port), "--quiet", "--phase-timeout", "2")
    code, out, err = user.run(*words)
    assert (code, out, user.daemon.living) == (4, "", [])
    assert "no progress" in err


def test_a_missing_image_is_fetched_and_a_token_goes_by_name(user: User, free_port: int) -> None:
    user.daemon.images.clear()
    user.environment["HF_TOKEN"] = "hf_s3cret"
    process = user.start(
        "-w", "me/small", "-p", str(free_port), "--name", "t", "--tuning", "reference"
    )
    lines = ready_lines(process)
    (run,) = user.daemon.runs
    assert run.environment["HF_TOKEN"] == "hf_s3cret"
    assert "HF_TOKEN" in run.options["-e"] and user.daemon.images == {IMAGE}
    state = json.loads((user.state / "gaudi-launch/services/t/state.json").read_text())
    assert b"hf_s3cret" not in Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=GENEROUS)
    assert "Pulling the image" in err
    written = [path.read_text(errors="replace") for path in user.state.rglob("*") if path.is_file()]
    assert not any("hf_s3cret" in text for text in [*lines, out, err, *written])


def test_a_hub_id_is_fetched_here_and_given_as_a_folder(
    user: User, free_port: int, tmp_path: Path
) -> None:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": struct.pack("<Q", 2) + b"{}",
    }
    with Hub(files, repo="me/small") as running:
        user.environment |= {**running.environment(), "HF_HOME": str(tmp_path / "hf")}
        process = user.start("-w", "me/small", "-p", str(free_port))
        assert "/models/small answers at" in ready_lines(process)[0]
    (run,) = user.daemon.runs
    folder = run.options["-v"][0].removesuffix(":/models/small:ro")
    assert (Path(folder) / "model.safetensors").read_bytes() == files["model.safetensors"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS)
    assert process.returncode == 130


def test_the_folder_of_the_neural_compressor(user: User, free_port: int, tmp_path: Path) -> None:
    words = ("-w", "MODEL", "-p", str(free_port), "--engine", "tgi@3.2.3", "--quant-config")
    config = tmp_path / "fp8" / "quantization_config" / "maxabs_quant.json"
    config.parent.mkdir(parents=True)
    code, _, err = user.run(*words, str(config))
    assert code == 2 and f"{tmp_path}/fp8/hqt_output" in err
    (tmp_path / "fp8" / "hqt_output").mkdir()
    code, _, err = user.run(*words, str(config))
    assert code == 2 and str(config) in err
    config.write_text("{}")
    process = user.start(*words, str(config))
    ready_lines(process)
    (run,) = user.daemon.runs
    assert run.environment["QUANT_CONFIG"] == "./quantization_config/maxabs_quant.json"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS)


def test_a_folder_of_links_is_told(user: User, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (user.model / "merges.txt").symlink_to(tmp_path / "elsewhere")
    code, _, err = user.run("-w", "MODEL")
    assert code == 2 and str(tmp_path / "elsewhere") in err and user.daemon.runs == []


def test_an_image_that_cannot_be_fetched(user: User) -> None:
    user.daemon.images.clear()
    user.daemon.registry = False
    code, _, err = user.run("-w", "MODEL")
    assert code == 3 and "could not pull the image" in err and user.daemon.runs == []


def test_the_list_of_engines_knows_the_image(user: User) -> None:
    code, out, _ = called(user.environment, "engines", "--json")
    rows = {row["name"]: row for row in json.loads(out)["engines"]}
    assert (code, rows["tgi@3.3.5"]["installed"]) == (0, IMAGE)
    assert rows["tgi@3.2.3"]["installed"] is None
    assert rows["tgi@3.3.5"]["lacks"] and rows["tgi@3.3.5"]["title"].startswith("TGI")


def test_a_kept_service_is_stopped_and_started_again(user: User, free_port: int) -> None:
    code, out, err = user.run("-w", "MODEL", "-p", str(free_port), "--name", "kept", "--detach")
    assert code == 0 and "/generate" in out, err
    try:
        assert len(user.daemon.living) == 1
        code, _, err = called(user.environment, "restart", "kept")
        assert code == 0, err
        assert (len(user.daemon.runs), len(user.daemon.living)) == (2, 1)
    finally:
        code, _, err = called(user.environment, "stop", "kept")
    assert (code, user.daemon.living) == (0, []), err


def test_what_a_killed_launcher_and_client_leave_is_found(user: User, free_port: int) -> None:
    user.daemon.do = "deaf"
    process = user.start("-w", "MODEL", "-p", str(free_port), "--name", "lost")
    ready_lines(process)
    # the client hears of the launcher's end and hands SIGTERM on, which this container does not
    # hear
    process.kill()
    process.communicate()
    assert len(user.daemon.living) == 1
    code, _, err = called(user.environment, "stop", "lost")
    assert (code, user.daemon.living) == (0, []), err


def no_docker(user: User) -> None:
    user.docker.unlink()
    # a docker of this machine must not be found either
    programs = Path(user.environment["GAUDI_LAUNCH_ROOT"]) / "bin"
    user.environment["PATH"] = f"{programs}:/nonexistent"


def no_daemon(user: User) -> None:
    user.environment["STUB_DOCKER"] = "/nonexistent"


def no_runtime(user: User) -> None:
    user.daemon.runtimes = ("runc",)


def nothing(user: User) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "words", "code", "sentence"),
    [
        (no_docker, ("-w", "MODEL"), 3, "no docker was found on PATH"),
        (
            no_daemon,
            ("-w", "MODEL"),
            3,
            "docker does not answer: Cannot connect to the Docker daemon",
        ),
        (no_runtime, ("-w", "MODEL"), 3, "no runtime 'habana'"),
        (nothing, ("-w", "/no/such/folder"), 5, "not a local folder"),
        (nothing, ("-w", "MODEL", "-u", "gaudi.example"), 2, "numeric addresses"),
        (nothing, ("-w", "MODEL", "-i", "4096", "-l", "4096"), 2, "leave no room for an answer"),
        (nothing, ("-w", "MODEL", "-e", "4"), 2, "-e does not apply to TGI 3.3.5"),
        (nothing, ("-w", "MODEL", "--python", "python3"), 2, "--python does not apply"),
        (nothing, ("-w", "MODEL", "-n", "9"), 3, "9"),
        (
            nothing,
            ("-w", "MODEL", "--", "--api-key", "s3cret"),
            2,
            "--api-key has a secret in its value",
        ),
        (nothing, ("-w", "MODEL", "--engine", "tgi@3.1.0"), 2, "tgi@3.1.0"),
    ],
)
def test_refusals_start_nothing(
    user: User, spoil: Callable[[User], None], words: tuple[str, ...], code: int, sentence: str
) -> None:
    spoil(user)
    got, out, err = user.run(*words)
    assert (got, out) == (code, "") and sentence in err
    said = [line for line in err.splitlines() if not line.startswith("  gaudi-launch ")]
    assert len(said) == 1 and "Traceback" not in err and "s3cret" not in err
    assert user.daemon.runs == [] and not (user.state / "gaudi-launch" / "services").exists()


def test_a_container_of_another_launch_is_left_alone(
    user: User, free_port: int, tmp_path: Path
) -> None:
    process = user.start("-w", "MODEL", "-p", str(free_port))
    ready_lines(process)
    # the port is taken, so pretend that only the name is: another docker network may hold it
    name = user.daemon.runs[0].name
    answer = subprocess.run(
        [
            *(str(user.docker), "run", "--rm", "--name", name, "-p", "127.0.0.1:1:80", IMAGE),
            *("--model-id", "m"),
        ],
        env=user.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 125 and user.daemon.living == [name]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=GENEROUS)
    assert user.daemon.living == []


def test_the_stub_is_no_part_of_the_path(user: User) -> None:
    assert shutil.which("docker", path=user.environment["PATH"]) == str(user.docker)
