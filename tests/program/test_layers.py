"""Only cli prints and knows of the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gaudi_launch

PACKAGE = Path(gaudi_launch.__file__).parent
APP = PACKAGE / "app"
FORBIDDEN = ("typer", "click", "rich", "gaudi_launch.cli")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", sorted(APP.glob("*.py")), ids=lambda path: path.stem)
def test_a_use_case_imports_no_command_and_prints_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wrong = [
        name
        for name in imported(tree)
        for bad in FORBIDDEN
        if name == bad or name.startswith(f"{bad}.")
    ]
    assert wrong == []
    calls = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print" not in calls


# programs of their own: their stdout is a log, or the answer to the process that started them
OWN_PROGRAMS = (
    "engines/**/runtime/*.py",
    "core/engines/vllm_cpu/inside_image.py",
    "gateway/runtime/*.py",
    "kubernetes/pods/*.py",
    "core/models/hub/child.py",
    "core/services/process/detach.py",
    "core/host/stub_hl_smi.py",
)


def prints(path: Path) -> list[int]:
    """Return the lines that call print or write to the terminal's streams."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "print" or called in ("sys.stdout.write", "sys.stderr.write"):
            found.append(node.lineno)
    return found


def test_nothing_outside_cli_prints() -> None:
    own_programs = {path for pattern in OWN_PROGRAMS for path in PACKAGE.glob(pattern)}
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "cli") or path in own_programs:
            continue
        lines = prints(path)
        if lines:
            found[str(path.relative_to(PACKAGE))] = lines
    assert found == {}


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, gaudi_launch; print([m for m in sys.modules if m.startswith('gaudi_launch.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['gaudi_launch.core.base.version']\n"


def test_the_api_is_typed_and_has_what_it_names() -> None:
    assert (APP.parent / "py.typed").exists()
    assert all(getattr(gaudi_launch, name) is not None for name in gaudi_launch.__all__)
    with pytest.raises(AttributeError):
        _ = gaudi_launch.nothing
