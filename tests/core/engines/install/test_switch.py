"""Versions of an environment: one rename puts one in force, an interruption none."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from gaudi_launch.core.engines.detect import interpreter
from gaudi_launch.core.engines.install import environment
from gaudi_launch.core.engines.install.environment import Recipe
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.engines.install.switch import Versions, fixed
from tests.support.places import TOP
from tests.support.processes import is_alive
from tests.support.refusals import raising
from tests.support.waiting import until

ENGINE = "tiny@1"
_SECONDS = 60


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "engines"
    folder.mkdir()
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(folder))
    return folder


def versions() -> Versions:
    return Versions("a", lambda folder: (folder / "done").exists())


def make(folder: Path, *, done: bool = True) -> Path:
    folder.mkdir()
    if done:
        (folder / "done").touch()
    return folder


def test_the_first_version_is_in_force_without_a_link(engines: Path) -> None:
    assert (versions().in_force(), versions().folder_for_new()) == (None, engines / "a")
    make(engines / "a", done=False)
    assert (versions().in_force(), versions().folder_for_new()) == (None, engines / "a")
    (engines / "a" / "done").touch()
    assert (versions().in_force(), versions().folder_for_new()) == (engines / "a", engines / "a+2")


def test_a_version_replaces_another_and_gives_way_to_it_again(engines: Path) -> None:
    first, second = make(engines / "a"), make(engines / "a+2")
    assert versions().put_in_force(first) is None
    assert versions().roll_back() is None
    assert versions().put_in_force(second) == first
    assert (versions().in_force(), versions().replaced()) == (second, first)
    assert not versions().is_rolled_back()
    assert versions().roll_back() == (first, second)
    assert (versions().in_force(), versions().replaced(), versions().is_rolled_back()) == (
        first,
        None,
        True,
    )
    assert versions().put_in_force(second) == first


def test_a_version_that_was_removed_is_neither_in_force_nor_returned_to(engines: Path) -> None:
    first, second = make(engines / "a"), make(engines / "a+2")
    versions().put_in_force(first)
    versions().put_in_force(second)
    shutil.rmtree(first)
    assert (versions().replaced(), versions().roll_back(), versions().in_force()) == (
        None,
        None,
        second,
    )
    shutil.rmtree(second)
    assert versions().in_force() is None


def test_a_version_does_not_replace_itself_or_a_folder_elsewhere(engines: Path) -> None:
    first, second = make(engines / "a"), make(engines / "a+2")
    versions().put_in_force(first)
    versions().put_in_force(second)
    for name in ("a+2", "../a", "", "a+3"):
        (second / "gaudi-launch-replaced").write_text(name)
        assert (versions().replaced(), versions().roll_back()) == (None, None), name
    assert versions().in_force() == second


def test_folders_of_other_engines_are_no_versions(engines: Path) -> None:
    for name in ("a", "a+2", "a+10", "a+1x", "ab", "a.current.bak", "a+0", "b+2"):
        make(engines / name)
    (engines / "a+3").symlink_to("a+2")
    assert [folder.name for folder in versions().folders()] == ["a", "a+2", "a+10"]


def test_the_remains_of_an_interrupted_switch_do_no_harm(engines: Path) -> None:
    first, second = make(engines / "a"), make(engines / "a+2")
    versions().put_in_force(first)
    (engines / ".a.current.new").symlink_to("a+9")
    assert versions().in_force() == first
    assert versions().put_in_force(second) == first
    assert sorted(entry.name for entry in engines.iterdir()) == ["a", "a+2", "a.current"]


def test_an_interpreter_keeps_its_version_after_a_switch(engines: Path) -> None:
    first, second = make(engines / "a"), make(engines / "a+2")
    for folder in (first, second):
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.executable)
    versions().put_in_force(first)
    linked = str(versions().link / "bin" / "python")
    assert interpreter(linked) == str(first / "bin" / "python")
    versions().put_in_force(second)
    assert interpreter(linked) == fixed(linked) == str(second / "bin" / "python")
    # what is in no linked folder stays as given: a virtual environment is known by its links
    assert interpreter(sys.executable) == str(Path(sys.executable).absolute())
    assert fixed("python3") == "python3"


# --- a real environment with a real wheel, installed by a real pip, killed at drawn moments


def wheel(folder: Path, version: str) -> None:
    """Write a wheel of the package `vllm` with nothing but its version."""
    info = f"vllm-{version}.dist-info"
    files = {
        "vllm/__init__.py": f"__version__ = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"vllm-{version}-py3-none-any.whl", "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)


def recipe(version: str, wheels: Path) -> Recipe:
    """Return the recipe of the package at a version, in the folder that setup would choose."""

    def in_folder(folder: Path) -> Recipe:
        python = str(folder / "venv" / "bin" / "python")
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index")
        steps = (
            InstallStep(
                "setup.venv", (sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
            ),
            InstallStep("setup.engine", (*pip, "--find-links", str(wheels), f"vllm=={version}")),
        )
        return Recipe(ENGINE, folder, steps, {}, python=python)

    known = environment.EngineEnvironment(ENGINE).versions()
    made = [
        each
        for each in map(in_folder, known.folders())
        if environment.remembered(each) == len(each.steps)
    ]
    return made[0] if made else in_folder(known.folder_for_new())


def install(version: str, wheels: Path) -> None:
    wanted = recipe(version, wheels)
    environment.make(wanted, lambda line: None)
    environment.put_in_force(wanted, lambda line: None)


def version_in_force() -> str:
    """Return the version that the interpreter in force imports."""
    python = str(environment.linked_python(ENGINE))
    done = subprocess.run(
        [python, "-c", "import vllm; print(vllm.__version__)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.core.engines.install.test_switch import install
install(sys.argv[1], Path(sys.argv[2]))
"""


def child(version: str, wheels: Path) -> subprocess.Popen[bytes]:
    """Start an installation in a process of its own."""
    root = str(TOP)
    words = [sys.executable, "-c", CHILD.format(root=root), version, str(wheels)]
    return subprocess.Popen(
        words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, as a power cut does."""
    doomed = [process.pid]
    for pid in doomed:
        os.kill(pid, signal.SIGSTOP)
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
            doomed += map(int, children.split())
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)
    process.wait(_SECONDS)
    until(lambda: not any(map(is_alive, doomed)))


def test_an_installation_that_is_killed_leaves_the_old_version_in_force(
    engines: Path, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        wheel(wheels, version)
    install("1.0", wheels)
    assert version_in_force() == "1.0"
    begin = time.monotonic()
    undisturbed = child("2.0", wheels)
    assert undisturbed.wait(_SECONDS) == 0
    length = time.monotonic() - begin
    assert version_in_force() == "2.0"
    environment.EngineEnvironment(ENGINE).versions().roll_back()
    draw = random.Random(22)
    for _ in range(5):
        # the one before may have been killed before it made its folder
        shutil.rmtree(engines / "tiny-1+2", ignore_errors=True)
        process = child("2.0", wheels)
        time.sleep(draw.uniform(0.2, 1.0) * length)
        kill(process)
        current = environment.EngineEnvironment(ENGINE).versions().in_force()
        assert current in (engines / "tiny-1", engines / "tiny-1+2")
        assert version_in_force() == ("1.0" if current == engines / "tiny-1" else "2.0")
        if current == engines / "tiny-1+2":
            environment.EngineEnvironment(ENGINE).versions().roll_back()
    install("2.0", wheels)
    assert version_in_force() == "2.0"


def test_a_new_version_that_cannot_be_imported_is_not_put_in_force(
    engines: Path, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "1.0")
    install("1.0", wheels)
    wheel(wheels, "2.0")
    broken = recipe("2.0", wheels)
    environment.make(broken, lambda line: None)
    (site,) = (broken.folder / "venv/lib").glob("python3.*/site-packages")
    (site / "vllm" / "__init__.py").write_text("from vllm import absent\n", encoding="utf-8")
    with raising("setup.trial_failed") as caught:
        environment.put_in_force(broken, lambda line: None)
    assert "cannot import name 'absent'" in str(caught.value.detail)
    assert version_in_force() == "1.0"


def test_a_running_process_keeps_the_version_it_was_started_from(
    engines: Path, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        wheel(wheels, version)
    install("1.0", wheels)
    python = interpreter(str(environment.linked_python(ENGINE)))
    assert python is not None
    # it imports the engine only after the switch
    program = "input(); import vllm; print(vllm.__version__)"
    running = subprocess.Popen(
        [python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    install("2.0", wheels)
    assert version_in_force() == "2.0"
    assert running.communicate("\n", timeout=_SECONDS)[0] == "1.0\n"
