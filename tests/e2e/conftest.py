"""The real engine: vLLM's CPU build in its own environment, made once and kept between runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.core.base.paths import cache_dir
from gaudi_launch.extensions.vllm_cpu import install as cpu_install
from tests.e2e.two_hosts import Wire
from tests.support.real_engines import Serve
from tests.support.turns import alone
from tests.support.waiting import unused_port


@pytest.fixture(scope="session")
def engine() -> Path:
    """The embedded engine's interpreter, made when it is not there."""
    cpu_install.EMBEDDED.setup(lambda line: print(line, file=sys.stderr))
    return cpu_install.EMBEDDED.python()


@pytest.fixture(scope="session")
def tiny_model(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    script = Path(cpu_install.__file__).parent / "runtime" / "make_demo.py"
    subprocess.run([str(engine), str(script), "tiny", str(folder)], check=True)
    return folder


@pytest.fixture
def port() -> int:
    return unused_port()


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
    """An interpreter that has Ray: the one that GAUDI_LAUNCH_RAY_PYTHON names, else one made
    once and kept."""
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
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the program ip")
    made = Wire(tmp_path, ray_python)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.clear()
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    yield made
    made.clear()
