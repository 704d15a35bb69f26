"""Only commands, views and cli print."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import gaudi_launch
from gaudi_launch.cli.table import COMMANDS, SUBCOMMANDS
from tests.support.places import PACKAGE

# programs of their own: their stdout is a log, or the answer to the process that started them
OWN_PROGRAMS = (
    "**/runtime/*.py",
    "extensions/vllm_cpu/inside_image.py",
    "**/pods/*.py",
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


def test_only_commands_views_and_cli_print() -> None:
    allowed = {path for pattern in OWN_PROGRAMS for path in PACKAGE.glob(pattern)}
    modules = [*(module for module, _ in COMMANDS.values()), *SUBCOMMANDS.values()]
    allowed |= {PACKAGE / f"{module.replace('.', '/')}.py" for module in modules}
    allowed |= {PACKAGE / "extensions/watch/top/screen.py", *PACKAGE.glob("**/*view.py")}
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "cli") or path in allowed:
            continue
        lines = prints(path)
        if lines:
            found[str(path.relative_to(PACKAGE))] = lines
    assert found == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions, and those of types alone, count too."""
    graph = grimp.build_graph("gaudi_launch", cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while True:
        # what imports nothing of the rest, or what nothing of it imports, is in no circle
        imported = {name for module in left for name in left[module]}
        kept = {name: left[name] & left.keys() for name in left if left[name] & left.keys()}
        kept = {name: kept[name] for name in kept if name in imported}
        if len(kept) == len(left):
            break
        left = kept
    assert left == {}


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, gaudi_launch; print([m for m in sys.modules if m.startswith('gaudi_launch.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "['gaudi_launch.core', 'gaudi_launch.core.base', 'gaudi_launch.core.base.version']\n"
    )


def test_the_api_is_typed_and_has_what_it_names() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert all(getattr(gaudi_launch, name) is not None for name in gaudi_launch.__all__)
    with pytest.raises(AttributeError):
        _ = gaudi_launch.nothing
