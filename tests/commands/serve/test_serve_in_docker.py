"""``serve --in docker`` with a stand-in docker: vLLM in a container, real processes, ports and
signals."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.core.engines.base import VLLM
from tests.support.cli import called
from tests.support.processes import free_port
from tests.support.serve import ready_lines
from tests.support.serve_tgi import User as TgiUser
from tests.support.serve_tgi import hurry
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port"]
IMAGE = "gaudi-launch/vllm-fork:1.21-277a33cd9"
CPU_IMAGE = f"gaudi-launch/cpu:{VLLM}"
CONFINED = ("--read-only", "--tmpfs", "--cap-drop", "--security-opt", "--shm-size", "--user")
ENGINE = ("--engine", "vllm-fork@1.21", "--in", "docker")


class User(TgiUser):
    """The same user with vLLM's image, and no engine in any interpreter."""

    engine = ()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.daemon.images.add(IMAGE)
        (self.model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    made = User(tmp_path)
    yield made
    made.close()


def test_it_answers_and_ctrl_c_ends_the_container(user: User, free_port: int) -> None:
    user.environment |= {"VLLM_API_KEY": "s3cret", "VLLM_LOGGING_LEVEL": "DEBUG"}
    process = user.start("-w", "MODEL", "-n", "2", "-p", str(free_port), "--name", "small", *ENGINE)
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after ") and lines[0].endswith(
        f"http://127.0.0.1:{free_port}\n"
    )
    (run,) = user.daemon.runs
    assert run.image == IMAGE
    assert run.options["--runtime"] == ["habana"] and run.options["--network"] == ["host"]
    assert run.options["--entrypoint"] == ["python3"]
    assert run.argv[:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert f"{user.model}:{user.model}:ro" in run.options["-v"]
    assert run.environment["HABANA_VISIBLE_DEVICES"] == "4,6"
    assert (run.environment["VLLM_API_KEY"], run.environment["VLLM_LOGGING_LEVEL"]) == (
        "s3cret",
        "DEBUG",
    )
    # the key is on no command line and in no file of ours
    assert not any("s3cret" in word for words in user.daemon.asked for word in words)
    folder = user.state / "gaudi-launch/services/small"
    assert not any("s3cret" in path.read_text() for path in folder.rglob("*") if path.is_file())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.daemon.living) == (130, [])
    assert err.splitlines()[-1] == "Stopped; no process remains."
    state = json.loads((folder / "state.json").read_text())
    assert (state["engine"], state["phase"]) == ("vllm-fork@1.21", "stopped")


def test_the_recipe_cache_is_filled_by_the_container_and_warm_the_next_time(
    user: User, free_port: int
) -> None:
    words = ("-w", "MODEL", "-n", "2", "-p", str(free_port), "--name", "small", *ENGINE)
    for cold in (True, False):
        process = user.start(*words)
        ready_lines(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=GENEROUS)
        assert process.returncode == 130, err
        assert ("Nothing was compiled for this model and machine before." in err) is cold
    recipes = sorted(
        path.name for path in Path(user.environment["XDG_CACHE_HOME"]).rglob("*.recipe")
    )
    assert recipes == [f"graph_{number}.recipe" for number in range(1, 5)]


def test_sigterm_ends_the_container(user: User, free_port: int) -> None:
    process = user.start("-w", "MODEL", "-p", str(free_port), *ENGINE)
    ready_lines(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.daemon.living) == (130, [])


def test_a_deaf_container_is_removed(user: User, free_port: int) -> None:
    user.daemon.do = "deaf"
    process = user.start("-w", "MODEL", "-p", str(free_port), "--name", "deaf", *ENGINE)
    ready_lines(process)
    hurry(user, process, "deaf")
    assert user.daemon.living == []
    assert user.daemon.asked[-1] == ["rm", "--force", user.daemon.runs[0].name]


def test_a_killed_launcher_leaves_no_container(user: User, free_port: int) -> None:
    process = user.start("-w", "MODEL", "-p", str(free_port), *ENGINE)
    ready_lines(process)
    process.kill()
    process.communicate()
    until(lambda: user.daemon.living == [], "the container's end")


def test_an_engine_that_dies_in_its_container_is_explained(user: User, free_port: int) -> None:
    user.daemon.do = "oom"
    code, out, err = user.run("-w", "MODEL", "-p", str(free_port), *ENGINE)
    assert (code, out) == (4, "")
    assert "PT_DEVMEM Allocation failed" in err and "Traceback" not in err
    assert user.daemon.living == []


@pytest.mark.parametrize("killed", [False, True], ids=["kept", "launcher and client killed"])
def test_detached_it_is_found_and_stopped(user: User, free_port: int, killed: bool) -> None:
    user.daemon.do = "deaf" if killed else ""
    code, _, err = user.run(
        "-w", "MODEL", "-p", str(free_port), "--name", "kept", "--detach", *ENGINE
    )
    assert code == 0, err
    if killed:
        state = json.loads((user.state / "gaudi-launch/services/kept/state.json").read_text())
        for pid in (state["launcher_pid"], state["pid"]):
            os.kill(pid, signal.SIGKILL)
    assert len(user.daemon.living) == 1
    code, _, err = called(user.environment, "stop", "kept")
    assert code == 0, err
    assert user.daemon.living == []


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("daemon", "docker"),
        ("runtime", "habana"),
        ("image", "gaudi-launch setup vllm-fork@1.21 --in docker"),
    ],
)
def test_a_machine_that_cannot(lacks: str, says: str, user: User, free_port: int) -> None:
    if lacks == "daemon":
        user.environment["STUB_DOCKER"] = "/nowhere.sock"
    elif lacks == "runtime":
        user.daemon.runtimes = ("runc",)
    else:
        user.daemon.images.clear()
    code, out, err = user.run("-w", "MODEL", "-p", str(free_port), *ENGINE)
    assert (code, out, user.daemon.runs) == (3, "", [])
    assert says in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-w", "MODEL", "--in", "cloud"), "cloud"),
        (("-w", "MODEL", "--image", "x"), "--in docker"),
        (("-w", "MODEL", "--in", "docker", "--python", "python3"), "--python"),
        (("-w", "demo", *ENGINE), "-w demo is for the embedded CPU engine"),
        (
            ("-w", "MODEL", *ENGINE, "--", "--ssl-keyfile-password", "hf_x"),
            "--ssl-keyfile-password",
        ),
    ],
)
def test_wrong_input_asks_docker_nothing(words: tuple[str, ...], says: str, user: User) -> None:
    code, out, err = user.run(*words)
    assert (code, out, user.daemon.asked) == (2, "", [])
    assert says in err and "hf_x" not in err


def test_the_embedded_engine_has_no_rights_in_its_container(user: User, free_port: int) -> None:
    user.daemon.images.add(CPU_IMAGE)
    process = user.start("-w", "MODEL", "-p", str(free_port), "--engine", "cpu", "--in", "docker")
    ready_lines(process)
    (run,) = user.daemon.runs
    assert run.image == CPU_IMAGE
    found = {name: value for name, value in run.options.items() if name in CONFINED}
    assert found == {
        "--read-only": [],
        "--tmpfs": ["/tmp"],
        "--cap-drop": ["ALL"],
        "--security-opt": ["no-new-privileges"],
        "--shm-size": ["2g"],
        **({"--user": [f"{os.getuid()}:{os.getgid()}"]} if os.getuid() else {}),
    }
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.daemon.living) == (130, [])


@pytest.mark.parametrize(
    ("lacks", "code", "says"),
    [
        ("image", 3, "gaudi-launch setup cpu --in docker"),
        ("rights", 2, "chmod -R a+rX"),
        ("demo", 5, "gaudi-launch setup cpu --in docker"),
    ],
)
def test_an_embedded_engine_that_cannot(
    lacks: str, code: int, says: str, user: User, free_port: int
) -> None:
    model = "demo" if lacks == "demo" else "MODEL"
    if lacks != "image":
        user.daemon.images.add(CPU_IMAGE)
    if lacks == "rights":
        if os.getuid():
            pytest.skip("the container's user is this one, who may read the file")
        (user.model / "config.json").chmod(0o600)
    words = ("-w", model, "-p", str(free_port), "--engine", "cpu", "--in", "docker")
    found, out, err = user.run(*words)
    assert (found, out, user.daemon.runs) == (code, "", [])
    assert says in err and "Traceback" not in err


def test_a_model_that_is_not_here_yet_is_fetched_for_an_image(user: User, free_port: int) -> None:
    """No interpreter of this machine has the engine, and none is needed: it is the hub that is
    not reached."""
    user.environment |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{free_port}",
        "HF_HOME": str(user.state / "hub"),
    }
    # the hub's library reads its address when it is imported
    process = user.start("-w", "Qwen/Qwen2.5-7B-Instruct", "-n", "1", "-p", str(free_port), *ENGINE)
    out, err = process.communicate(timeout=GENEROUS)
    assert (out, user.daemon.runs) == ("", [])
    assert process.returncode == 1 and "hf could not be reached" in err, err
