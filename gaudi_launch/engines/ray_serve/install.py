"""An environment with Ray Serve beside the embedded engine, which it borrows: for trying out and for tests.

The embedded engine's packages are seen through a .pth file, so pip adds only what Ray lacks (measured: 15 s,
310 MB) and the engine's own environment stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gaudi_launch.engines import embedded
from gaudi_launch.engines.detect import Installed, detect

RAY = "2.60.0"


def environment_dir() -> Path:
    return embedded.engines_dir() / "ray"


def python_path() -> Path:
    """Ray's interpreter, there or not."""
    return environment_dir() / "bin" / "python"


def is_ready() -> bool:
    wanted = {"ray": RAY, "vllm": embedded.VLLM, "beside": str(embedded.environment_dir())}
    return embedded.engine_is_ready() and embedded.is_whole(environment_dir(), wanted) and python_path().exists()


def installed(demo: bool) -> Installed | None:
    """What to run Ray Serve with when nobody named an interpreter: python3 on PATH where it has Ray, else ours.

    ``demo`` wants ours. Raises LaunchError when an interpreter does not answer.
    """
    found = None if demo and is_ready() else detect(None)
    if (found is None or "ray" not in found.packages) and is_ready():
        return detect(str(python_path()))
    return found


def steps() -> list[embedded.Step]:
    """The steps that make the environment, in order; they need the embedded engine."""
    folder, python = environment_dir(), str(python_path())
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    return [
        embedded.Step("ray.setup_venv", (str(embedded.python_path()), "-m", "venv", "--clear", str(folder))),
        embedded.Step("ray.setup_borrow", (), lambda: _borrow(folder)),
        embedded.Step("ray.setup_install", (*pip, "install", "--quiet", f"ray[serve]=={RAY}")),
    ]


def setup(say: Callable[[str], None], *, demo: bool = True, index_url: str | None = None) -> None:
    """Make what is missing: the embedded engine (and demo model), then Ray beside it. Raises LaunchError."""
    from gaudi_launch.messages import text

    embedded.setup(say, demo=demo, index_url=index_url)
    with embedded.alone():
        if is_ready():
            say(text("serve.setup_have_engine", path=environment_dir()))
            return
        embedded.run_steps(embedded.mirrored(steps(), index_url), say)
        marker = {"ray": RAY, "vllm": embedded.VLLM, "beside": str(embedded.environment_dir())}
        embedded.mark(environment_dir(), marker)


def _borrow(folder: Path) -> None:
    """Let this environment see the embedded engine's packages."""
    theirs = next(embedded.environment_dir().glob("lib/python3.*/site-packages"))
    ours = next(folder.glob("lib/python3.*/site-packages"))
    (ours / "embedded_engine.pth").write_text(f"{theirs}\n", encoding="utf-8")
