"""``serve --in podman`` and ``--in docker`` with real podman, runc and the small image."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.core.engines.docker_command import PODMAN_RUNTIME
from gaudi_launch.core.host.simulated import write_tree
from tests.support import real_podman
from tests.support.places import SUPPORT
from tests.support.processes import free_port
from tests.support.serve import CONFIG, ready_lines
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port"]
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(real_podman.why_not()), reason=real_podman.why_not()),
]
CPU = ("--engine", "cpu", "--image", real_podman.IMAGE)
CARDS = ("--engine", "vllm-fork@1.21", "-n", "2", "--image", real_podman.IMAGE_OF_ROOT)


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the variables of a podman whose store has the image."""
    folder = tmp_path_factory.mktemp("podman")
    made = real_podman.settings(folder)
    try:
        real_podman.make_images(made)
        real_podman.podman(made, "run", "--rm", real_podman.IMAGE, "python3", "-c", "")
    except AssertionError as error:
        pytest.skip(f"podman cannot run a container here: {error}")
    yield made
    real_podman.remove(folder, made)


class User:
    """Runs the command with real podman, and with a machine of simulated cards."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.variables = variables
        machine = folder / "machine"
        write_tree("hls2", machine)
        # podman's own option names the runtime of Gaudi cards by its path; the machine has
        # more CPUs than this one
        self.stub = machine / "bin" / "podman"
        self.stub.write_text(
            f"#!{sys.executable}\nimport os, sys\n"
            f"old, new = {PODMAN_RUNTIME!r}, {self._runtime(folder)!r}\n"
            "words = [w.replace(old, new) for w in sys.argv]\n"
            "words = [w for w in words if not w.startswith('--cpuset-cpus=')]\n"
            f"os.execv({shutil.which('podman')!r}, words)\n"
        )
        self.stub.chmod(self.stub.stat().st_mode | stat.S_IXUSR)
        self.model = folder / "models" / "Small"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "tokenizer.json").write_text("{}")
        (self.model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        # pytest's folders are for their owner only
        for parent in self.model.parents:
            if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
                parent.chmod(0o755)
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("VLLM_", "HABANA_", "PT_HPU", "LC_", "LANG", "DOCKER_"))
        }
        self.environment = {
            **kept,
            **variables,
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_DATA_HOME": str(folder / "data"),
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
        }
        self.machine = machine
        self.running: list[subprocess.Popen[str]] = []

    def _runtime(self, folder: Path) -> str:
        program = folder / "habana-container-runtime"
        # podman gives a runtime no variables
        machine, path = folder / "machine", os.environ["PATH"]
        program.write_text(
            f"#!/bin/sh\nSTUB_MACHINE={machine} PATH={path} exec {sys.executable} "
            f'{SUPPORT / "habana_runtime.py"} "$@"\n'
        )
        program.chmod(0o755)
        return str(program)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gaudi_launch", "serve", "--no-doctor", "--name", "one"]
        process = subprocess.Popen(
            [*command, "-w", str(self.model), *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def podman(self, *words: str) -> str:
        return real_podman.podman(self.variables, *words).strip()

    def containers(self) -> list[str]:
        return real_podman.containers(self.variables)

    def inside(self, expression: str) -> str:
        """Return the value of an expression in the container."""
        (name,) = self.containers()
        return self.podman("exec", name, "python3", "-c", f"import os; print({expression})")

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()
        # a killed launcher's own stop may remove the container at the same moment
        until(lambda: real_podman.remove_containers(self.variables), "the containers' end")


@pytest.fixture
def user(tmp_path: Path, variables: dict[str, str]) -> Iterator[User]:
    made = User(tmp_path, variables)
    yield made
    made.close()


def test_the_engine_answers_without_rights_and_ctrl_c_ends_it(user: User, free_port: int) -> None:
    process = user.start("-p", str(free_port), "--in", "podman", *CPU)
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after ")
    (name,) = user.containers()
    wanted = "{{.HostConfig.ReadonlyRootfs}} {{.Config.User}} {{len .EffectiveCaps}}"
    assert user.podman("inspect", "--format", wanted, name) == "true 65532:65532 0"
    assert user.inside("os.getuid(), os.access('/usr', os.W_OK), os.access('/tmp', os.W_OK)") == (
        "65532 False True"
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.containers()) == (130, [])


def test_a_killed_launcher_leaves_no_container(user: User, free_port: int) -> None:
    process = user.start("-p", str(free_port), "--in", "podman", *CPU)
    ready_lines(process)
    process.kill()
    process.communicate()
    until(lambda: user.containers() == [], "the container's end")


@pytest.mark.parametrize("killed", ["client", "engine"])
def test_a_killed_part_ends_the_service(killed: str, user: User, free_port: int) -> None:
    process = user.start("-p", str(free_port), "--in", "podman", *CPU)
    ready_lines(process)
    state = Path(user.environment["XDG_STATE_HOME"], "gaudi-launch/services/one/state.json")
    pid = json.loads(state.read_text())["pid"]
    if killed == "engine":
        pid = int(user.podman("inspect", "--format", "{{.State.Pid}}", *user.containers()))
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, user.containers()) == (4, []), err


def test_the_runtime_gives_the_chosen_cards(user: User, free_port: int) -> None:
    user.environment["GAUDI_LAUNCH_ROOT"] = str(user.machine)
    process = user.start("-p", str(free_port), "--in", "podman", *CARDS)
    lines = ready_lines(process)
    assert lines[0].startswith("Ready after "), process.communicate(timeout=GENEROUS)
    plan = Path(user.environment["XDG_STATE_HOME"], "gaudi-launch/services/one/plan.json")
    container = json.loads(plan.read_text())["container"]
    variables = user.inside("open('/proc/1/environ').read().split(chr(0))")
    modules = ",".join(str(module) for module in container["modules"])
    assert f"'HABANA_VISIBLE_MODULES={modules}'" in variables
    nodes = sorted(
        f"{kind}{index}" for index in container["indices"] for kind in ("accel", "accel_controlD")
    )
    assert user.inside("sorted(os.listdir('/dev/accel'))") == str(nodes)
    assert container["indices"] != container["modules"]


def test_docker_starts_it_by_podmans_socket(user: User, free_port: int, tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker client on this machine")
    socket = tmp_path / "podman.sock"
    with subprocess.Popen(
        ["podman", "system", "service", "--time=0", f"unix://{socket}"],
        env={**os.environ, **user.variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as service:
        try:
            until(socket.exists, "podman's socket")
            user.environment["DOCKER_HOST"] = f"unix://{socket}"
            process = user.start("-p", str(free_port), "--in", "docker", *CPU)
            ready_lines(process)
            assert user.inside("os.getuid()") == "65532"
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=GENEROUS)
            assert (process.returncode, user.containers()) == (130, [])
            # the engine ends at SIGTERM; the trivial one would else sleep for a minute
            assert time.monotonic() - began < 50
        finally:
            service.kill()
