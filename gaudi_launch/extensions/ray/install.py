"""An environment with Ray Serve that borrows the embedded engine, for trials.

The embedded engine's packages are visible through a .pth file, so pip adds only what Ray lacks
(measured: 15 s, 310 MB) and the engine's environment stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.core.base.mirrors import Mirrors, read
from gaudi_launch.core.base.paths import engines_dir, machine_root
from gaudi_launch.core.engines.detect import Installed, detect
from gaudi_launch.core.engines.install.change import change, place_for
from gaudi_launch.core.engines.install.in_use import marker_of
from gaudi_launch.core.engines.install.switch import Versions
from gaudi_launch.core.engines.vllm_cpu import install as cpu_install
from gaudi_launch.core.host.read import read_host

RAY = "2.60.0"


def versions() -> Versions:
    """Return the versions of Ray's environment on this machine."""
    return Versions("ray", lambda folder: marker_of(folder) is not None)


def environment_dir() -> Path:
    """Return the folder of the version in force, else where the first one will be."""
    return versions().in_force() or engines_dir() / "ray"


def python_path() -> Path:
    """Return the path of Ray's interpreter, which may not exist."""
    return environment_dir() / "bin" / "python"


def is_ready() -> bool:
    """Return True for a complete environment that borrows the engine in force."""
    found = marker_of(environment_dir())
    if found is None or not cpu_install.engine_is_ready() or not python_path().exists():
        return False
    return (_is_wanted(found) or versions().is_rolled_back()) and _is_beside(
        found.get("beside", "")
    )


def is_newest() -> bool:
    """Return True if the version in force is the one that this program installs."""
    return is_ready() and _is_wanted(marker_of(environment_dir()) or {})


def _is_wanted(found: dict[str, str]) -> bool:
    return found.get("ray") == RAY and found.get("vllm") == cpu_install.VLLM


def _is_beside(path: str) -> bool:
    """Return True if this path in the environment is the embedded engine's folder."""
    try:
        return Path(path).samefile(cpu_install.environment_dir())
    except OSError:
        return False


def installed(name: str) -> Installed | None:
    """Return the interpreter for this Ray Serve when the user named none.

    python3 on PATH or an engine's of `setup` where it has Ray. Ours, whose engine uses no card, is
    for that engine, and for a machine without cards. Raises LaunchError when an interpreter does
    not answer.
    """
    # the table of engines imports this module
    from gaudi_launch.core.engines.registry import detect_engine, in_embedded

    inner = name.partition(":")[2]
    if is_ready() and in_embedded(inner):
        return detect(str(python_path()))
    found = detect_engine(None, "ray-serve")
    if found is not None and "ray" in found.packages:
        return found
    if is_ready() and not read_host(machine_root()).cards:
        return detect(str(python_path()))
    # Ray is added to the engine's environment
    return detect_engine(None, inner or "auto")


def steps(folder: Path | None = None) -> list[cpu_install.InstallStep]:
    """Return the steps that make the environment, in order.

    They need the embedded engine. ``folder`` is its place; by default the one in force.
    """
    folder = folder or environment_dir()
    python = str(folder / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    return [
        cpu_install.InstallStep(
            "ray.setup_venv", (str(cpu_install.python_path()), "-m", "venv", "--clear", str(folder))
        ),
        cpu_install.InstallStep("ray.setup_borrow", (), lambda: _borrow(folder)),
        cpu_install.InstallStep(
            "ray.setup_install", (*pip, "install", "--quiet", f"ray[serve]=={RAY}")
        ),
    ]


def setup(say: cpu_install.Say, *, demo: bool = True, mirrors: Mirrors | None = None) -> None:
    """Make what is missing: the embedded engine (and demo model), then Ray.

    Raises LaunchError.
    """
    from gaudi_launch.core.base.messages import text

    mirrors = read() if mirrors is None else mirrors
    cpu_install.setup(say, demo=demo, mirrors=mirrors)
    with cpu_install.alone() as temporary:
        if is_newest():
            say(text("serve.setup_have_engine", path=environment_dir()))
            return
        marker = {
            "ray": RAY,
            "vllm": cpu_install.VLLM,
            "beside": str(cpu_install.environment_dir().resolve()),
        }
        folder = place_for(versions(), marker, ("ray", "vllm"))
        if not cpu_install.is_whole(folder, marker):
            made = cpu_install.mirrored(steps(folder), mirrors)
            cpu_install.run_steps(made, say, mirrors, temporary)
            cpu_install.mark(folder, marker)
        change(versions(), folder, folder / "bin" / "python", say)


def _borrow(folder: Path) -> None:
    """Make the embedded engine's packages visible in this environment."""
    theirs = next(cpu_install.environment_dir().resolve().glob("lib/python3.*/site-packages"))
    ours = next(folder.glob("lib/python3.*/site-packages"))
    (ours / "embedded_engine.pth").write_text(f"{theirs}\n", encoding="utf-8")
