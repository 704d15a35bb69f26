"""Install gaudi-launch with each Python of this machine, and remove it.

`install.py [--python PATH ...] [--root IMAGE] [--short]`

Part 1: a wheel and a source distribution are built; the wheel of the source distribution has the
same files. Part 2: the wheel is installed by pip into an environment of each Python, and by pipx;
the command plans for a simulated machine; what remains after the removal is in the folders of the
XDG specification. Part 3, as root with podman: `scripts/quickstart.sh` in a container of an image
with an empty Debian (``--root``; python3, python3-venv and libnuma1 are needed), as a new user
without rights. pip's settings are this machine's, mounted and not kept. The seconds in which pip
brings and installs wheels are stated apart; the rest may be 180.

Without ``--python`` it tries python3.10 to python3.13 on PATH and those of pyenv. ``--short`` is
part 1, and pip with this Python and the packages that it has. The exit status is 0 when all parts
passed, 3 where no environment or builder can be had.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from itertools import pairwise
from pathlib import Path

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.install.pip_settings import read_settings

TOP = Path(__file__).parents[2]
MOST_SECONDS = 180.0
_MINORS = (10, 11, 12, 13)
_PLAN = ("plan", "-w", "/models/Qwen2-72B-Instruct", "-n", "4", "--machine", "simulated:hls2")
# the steps whose time depends on the network and the disk rather than on the quickstart
_PACKAGE_STEPS = (
    "serve.setup_torch",
    "serve.setup_download",
    "serve.setup_install",
    "serve.setup_vllm",
    "serve.setup_demo_download",
)
_LAUNCHER_STEP = "== Installing gaudi-launch"
_WHERE = "import gaudi_launch; print(gaudi_launch.__file__)"
_MOUNTED = "/run/gaudi-launch"


def run(*argv: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command and return its output; a failure ends the program with it."""
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv[:4])} ...: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def missing(folder: Path) -> str:
    """Make an environment with the builder; return why that is impossible, or ""."""
    tools = folder / "tools"
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(tools)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return f"no environment can be made here: {(made.stdout + made.stderr).strip()}"
    words = [str(tools / "bin/pip"), "install", "--quiet", "hatchling"]
    got = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if got.returncode == 0 else "pip finds no package hatchling here"


def build(folder: Path) -> Path:
    """Build both distributions; return the wheel.

    The wheels of both must have the same files."""
    source = folder / "source"
    tracked = run("git", "ls-files", cwd=TOP).splitlines()
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, source / name)
    tools = folder / "tools/bin"
    make = ("-m", "hatchling", "build", "--target", "wheel", "--target", "sdist")
    run(str(tools / "python"), *make, "--directory", str(folder / "dist"), cwd=source)
    (wheel,) = (folder / "dist").glob("*.whl")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    again = folder / "again"
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(again))
    run(str(tools / "pip"), *words, str(archive))
    (rebuilt,) = again.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(rebuilt) as two:
        names = sorted(one.namelist())
        if names != sorted(two.namelist()):
            sys.exit("the wheels of the tree and of the source distribution differ")
    print(f"built: {wheel.name} and {archive.name}, {len(names)} files in the wheel")
    return wheel


def pythons(given: list[str]) -> list[str]:
    """Return the interpreters to try, one of each minor version."""
    if given:
        return given
    found = {}
    pyenv = Path.home() / ".pyenv" / "versions"
    for minor in _MINORS:
        named = shutil.which(f"python3.{minor}")
        inside = sorted(pyenv.glob(f"3.{minor}.*/bin/python"))
        for each in (*map(str, inside), named):
            if each is not None and _answers(each):
                found[minor] = each
                break
    return list(found.values())


def _answers(python: str) -> bool:
    done = subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False)
    return done.returncode == 0


def home_variables(home: Path) -> dict[str, str]:
    """Return the variables of a user with a new home folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "GAUDI_LAUNCH_"))}
    return {**kept, "HOME": str(home), "PIPX_HOME": str(home / "pipx")}


def by_pip(python: str, wheel: Path, folder: Path) -> None:
    """Install into an environment, plan, and remove the package again."""
    home, place = folder / "home", folder / "environment"
    home.mkdir(parents=True)
    began = time.monotonic()
    run(python, "-m", "venv", str(place))
    run(str(place / "bin/pip"), "install", "--quiet", str(wheel))
    seconds = time.monotonic() - began
    variables = home_variables(home)
    command = str(place / "bin/gaudi-launch")
    version = run(command, "--version", env=variables).strip()
    _check_plan(run(command, *_PLAN, "--json", env=variables), python)
    run(str(place / "bin/pip"), "uninstall", "--quiet", "--yes", "gaudi-launch")
    left = [str(path) for path in place.rglob("*gaudi*") if path.is_file()]
    _check_left(home, left)
    inside = run(str(place / "bin/python"), "-V").strip()
    print(f"pip, {inside}: {version}, installed in {seconds:.0f} s, removed without a trace")


def with_packages_here(wheel: Path, folder: Path) -> None:
    """Install for this Python, plan, and remove again; seconds, not minutes.

    Other packages are those of the environment of this Python.
    """
    home, place = folder / "home", folder / "environment"
    home.mkdir(parents=True)
    run(sys.executable, "-m", "venv", "--without-pip", str(place))
    pip = (str(folder.parent / "tools/bin/pip"), "--python", str(place / "bin/python"))
    run(*pip, "install", "--quiet", "--no-deps", str(wheel))
    (site,) = place.glob("lib/python3*/site-packages")
    others = site / "others.pth"
    here = [each for each in sys.path if each.endswith("-packages")]
    others.write_text("\n".join(here) + "\n")
    variables = home_variables(home)
    command = str(place / "bin/gaudi-launch")
    version = run(command, "--version", env=variables, cwd=home).strip()
    found = run(str(place / "bin/python"), "-c", _WHERE, env=variables, cwd=home).strip()
    if not found.startswith(str(site)):
        sys.exit(f"another package was tried: {found}")
    _check_plan(run(command, *_PLAN, "--json", env=variables, cwd=home), sys.executable)
    run(command, "help", "install", env=variables, cwd=home)
    others.unlink()
    run(*pip, "uninstall", "--quiet", "--yes", "gaudi-launch")
    _check_left(home, [str(path) for path in place.rglob("*gaudi*") if path.is_file()])
    print(f"pip, this Python: {version}, removed without a trace")


def by_pipx(python: str, wheel: Path, folder: Path) -> None:
    """Install by pipx, plan, and remove again."""
    home, place = folder / "home", folder / "tools"
    home.mkdir(parents=True)
    run(python, "-m", "venv", str(place))
    run(str(place / "bin/pip"), "install", "--quiet", "pipx")
    variables = home_variables(home)
    pipx = str(place / "bin/pipx")
    run(pipx, "install", "--quiet", str(wheel), env=variables)
    command = str(home / ".local/bin/gaudi-launch")
    run(command, *_PLAN, "--json", env=variables)
    run(pipx, "uninstall", "gaudi-launch", env=variables)
    if Path(command).exists() or (home / "pipx/venvs/gaudi-launch").exists():
        sys.exit("pipx left the command")
    _check_left(home, [])
    print(f"pipx {run(pipx, '--version').strip()}: installed and removed without a trace")


def _check_plan(printed: str, python: str) -> None:
    """End the program where a plan has no settings."""
    if not json.loads(printed)["settings"]:
        sys.exit(f"{python}: the plan has no settings")


def _check_left(home: Path, left: list[str]) -> None:
    """End the program where files of the package remain outside the XDG folders."""
    usual = ("state/gaudi-launch", "share/gaudi-launch", "state/pipx", "bin")
    allowed = [home / ".local" / each for each in usual]
    allowed += [home / each for each in (".cache", ".config/gaudi-launch", "pipx")]
    for path in home.rglob("*"):
        is_ours = "gaudi" in str(path.relative_to(home))
        if path.is_file() and is_ours and not any(each in path.parents for each in allowed):
            left.append(str(path))
    if left:
        sys.exit(f"left after the removal: {left[:5]}")


def quickstart(image: str, folder: Path) -> None:
    """Run the quickstart in an empty Debian as a new user; state its own seconds."""
    source, settings = folder / "source", folder / "settings"
    settings.mkdir()
    found = read_settings(os.environ, f"{_MOUNTED}/pip")
    (settings / "pip.conf").write_text(found.config)
    folder.chmod(0o755)
    argv = ["podman", "run", "--rm", "--init", "--network=host", "--user=0:0", "--shm-size=2g"]
    mounts = {f"{_MOUNTED}/settings": str(settings), "/source": str(source), **found.mounts}
    for target, place in mounts.items():
        argv += ["--volume", f"{place}:{target}:ro"]
    for name, value in found.variables.items():
        argv += ["--env", f"{name}={value}"]
    steps = (
        "useradd --create-home newcomer && cp -r /source /home/newcomer/gaudi-launch && "
        "chown -R newcomer /home/newcomer && cd /home/newcomer/gaudi-launch && "
        f"exec setpriv --reuid=newcomer --regid=newcomer --init-groups env HOME=/home/newcomer "
        f"PIP_CONFIG_FILE={_MOUNTED}/settings/pip.conf bash scripts/quickstart.sh"
    )
    began = time.monotonic()
    times: list[tuple[float, str]] = []
    with subprocess.Popen(
        [*argv, image, "bash", "-c", steps],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            times.append((time.monotonic() - began, line.rstrip()))
            print(f"{times[-1][0]:6.1f} s  {times[-1][1][:160]}", flush=True)
        status = process.wait()
    # the removal of the container is not counted
    total = times[-1][0] if times else 0.0
    packages = _package_seconds(times)
    own = total - packages
    print(
        f"quickstart: {total:.0f} s in all, {packages:.0f} s of them for packages, own {own:.0f} s"
    )
    answered = any("Paris" in line for _, line in times)
    if status or not answered or own > MOST_SECONDS:
        sys.exit(f"the quickstart failed: status {status}, answered {answered}, own {own:.0f} s")


def _package_seconds(times: list[tuple[float, str]]) -> float:
    """Return the seconds of the steps in which pip downloads and installs wheels."""
    steps = [text(each) for each in _PACKAGE_STEPS]
    seconds = 0.0
    for (at, line), (until, _) in pairwise(times):
        if line == _LAUNCHER_STEP or any(line.endswith(f"] {step}") for step in steps):
            seconds += until - at
    return seconds


def main() -> int:
    """Run the parts; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try")
    parser.add_argument("--root", help="an image with an empty Debian, for the quickstart")
    parser.add_argument("--short", action="store_true", help="this Python and its packages")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-install-") as temporary:
        folder = Path(temporary)
        why = missing(folder)
        if why:
            print(why, file=sys.stderr)
            return 3
        wheel = build(folder)
        if given.short:
            with_packages_here(wheel, folder / "here")
        else:
            complete(wheel, folder, given.python)
        if given.root:
            quickstart(given.root, folder)
    print("passed")
    return 0


def complete(wheel: Path, folder: Path, given: list[str]) -> None:
    """Install with all packages into new environments of each Python, and by pipx."""
    tried = pythons(given)
    for number, python in enumerate(tried):
        by_pip(python, wheel, folder / f"pip{number}")
    by_pipx(tried[-1], wheel, folder / "by-pipx")


if __name__ == "__main__":
    sys.exit(main())
