"""An environment with Ray Serve that borrows the embedded engine, for trials.

The embedded engine's packages are visible through a .pth file, so pip adds only what Ray lacks
(measured: 15 s, 310 MB) and the engine's environment stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gaudi_launch.engines.detect import Installed, detect
from gaudi_launch.engines.install.in_use import check_clearable, marker_of
from gaudi_launch.engines.vllm_cpu import install as cpu_install

RAY = "2.60.0"


def environment_dir() -> Path:
    return cpu_install.engines_dir() / "ray"


def python_path() -> Path:
    """Return the path of Ray's interpreter, which may not exist."""
    return environment_dir() / "bin" / "python"


def is_ready() -> bool:
    found = marker_of(environment_dir())
    if found is None or not cpu_install.engine_is_ready() or not python_path().exists():
        return False
    same_versions = found.get("ray") == RAY and found.get("vllm") == cpu_install.VLLM
    return same_versions and _is_beside(found.get("beside", ""))


def _is_beside(path: str) -> bool:
    """Return True if this path in the environment is the embedded engine's folder."""
    try:
        return Path(path).samefile(cpu_install.environment_dir())
    except OSError:
        return False


def installed(demo: bool) -> Installed | None:
    """Return the interpreter for Ray Serve when the user named none.

    python3 on PATH where it has Ray, else ours. ``demo`` needs ours. Raises LaunchError when an
    interpreter does not answer.
    """
    found = None if demo and is_ready() else detect(None)
    if (found is None or "ray" not in found.packages) and is_ready():
        return detect(str(python_path()))
    return found


def steps() -> list[cpu_install.InstallStep]:
    """Return the steps that make the environment, in order.

    They need the embedded engine.
    """
    folder, python = environment_dir(), str(python_path())
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    return [
        cpu_install.InstallStep(
            "ray.setup_venv", (str(cpu_install.python_path()), "-m", "venv", "--clear", str(folder))
        ),
        cpu_install.InstallStep("ray.setup_borrow", (), lambda: _borrow(folder)),
        cpu_install.InstallStep("ray.setup_install", (*pip, "install", "--quiet", f"ray[serve]=={RAY}")),
    ]


def setup(say: Callable[[str], None], *, demo: bool = True, index_url: str | None = None) -> None:
    """Make what is missing: the embedded engine (and demo model), then Ray.

    Raises LaunchError.
    """
    from gaudi_launch.messages import text

    cpu_install.setup(say, demo=demo, index_url=index_url)
    with cpu_install.alone():
        if is_ready():
            say(text("serve.setup_have_engine", path=environment_dir()))
            return
        marker = {"ray": RAY, "vllm": cpu_install.VLLM, "beside": str(cpu_install.environment_dir().resolve())}
        check_clearable(environment_dir(), marker)
        cpu_install.run_steps(cpu_install.mirrored(steps(), index_url), say)
        cpu_install.mark(environment_dir(), marker)


def _borrow(folder: Path) -> None:
    """Make the embedded engine's packages visible in this environment."""
    theirs = next(cpu_install.environment_dir().resolve().glob("lib/python3.*/site-packages"))
    ours = next(folder.glob("lib/python3.*/site-packages"))
    (ours / "embedded_engine.pth").write_text(f"{theirs}\n", encoding="utf-8")
