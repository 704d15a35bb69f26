"""The real engine: vLLM's CPU build in its own environment, made once and kept between runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gaudi_launch.engines import embedded
from gaudi_launch.paths import cache_dir
from tests.conftest import alone
from tests.e2e.two_hosts import Wire
from tests.waiting import unused_port


@pytest.fixture(scope="session")
def engine() -> Path:
    """The embedded engine's interpreter, made when it is not there."""
    embedded.setup(lambda line: print(line, file=sys.stderr))
    return embedded.python_path()


@pytest.fixture(scope="session")
def tiny_model(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    embedded.make_tiny(folder)
    return folder


@pytest.fixture
def port() -> int:
    return unused_port()


class Serve:
    """One `gaudi-launch serve` of a user; whatever descends from it is known and must be gone in the end."""

    def __init__(self, state: Path, *words: str) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gaudi_launch", "serve", "--quiet", *words],
            env={**os.environ, "XDG_STATE_HOME": str(state), "http_proxy": "http://127.0.0.1:9"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.family: list[psutil.Process] = []

    def ready(self) -> list[str]:
        """The lines printed once it answers; then the family is known."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(4)]
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        return lines

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=600)
        return self.process.returncode, err

    def alive(self) -> list[psutil.Process]:
        return [p for p in self.family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[list[Serve]]:
    """Put every started serve in here: it is cleared away, and it must have left nothing."""
    started: list[Serve] = []
    yield started
    for serve in started:
        if serve.process.poll() is None:
            serve.process.kill()
        serve.process.communicate()
    left = [process for serve in started for process in serve.alive()]
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture(scope="session")
def ray_python() -> Path:
    """An interpreter that has Ray: the one that GAUDI_LAUNCH_RAY_PYTHON names, else one made once and kept."""
    given = os.environ.get("GAUDI_LAUNCH_RAY_PYTHON")
    if given:
        return Path(given)
    python = cache_dir() / "tests" / "ray" / "bin" / "python"
    with alone("ray"):
        if not (python.with_name("ray")).exists():
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "ray"], check=True)
    return python


@pytest.fixture
def wire(tmp_path: Path, ray_python: Path) -> Iterator[Wire]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    made = Wire(tmp_path, ray_python)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.clear()
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    yield made
    made.clear()
