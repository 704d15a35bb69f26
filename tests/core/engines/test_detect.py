"""Asking an interpreter what it has: real interpreters with made-up packages, none of which may
be imported."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.detect import detect, parse, question
from gaudi_launch.core.engines.registry import find
from tests.support.engines import interpreter
from tests.support.refusals import failing, raising

BOOM = "raise RuntimeError('imported')\n"


EXTENSION = "vllm_hpu_extension"
PACKAGES = {"vllm": "0.9.0", "vllm-hpu-extension": "1.0", "habana-torch-plugin": "1.22.1.6"}
LIMIT = "def warmup_range_with_limit(config): ...\n"


@pytest.mark.parametrize(
    ("files", "engine", "limit"),
    [
        ({f"{EXTENSION}/bucketing/linear.py": ""}, "vllm-fork@1.21", "false"),
        (
            {f"{EXTENSION}/bucketing/linear.py": "", f"{EXTENSION}/features.py": ""},
            "vllm-fork@1.22",
            "false",
        ),
        (
            {f"{EXTENSION}/bucketing/linear.py": LIMIT, f"{EXTENSION}/features.py": ""},
            "vllm-fork@1.22",
            "true",
        ),
        ({f"{EXTENSION}/bucketing.py": LIMIT}, "deepseek_r1", "true"),
    ],
)
def test_the_fork_is_told_by_its_files(
    files: dict[str, str], engine: str, limit: str, tmp_path: Path
) -> None:
    common = {"vllm/__init__.py": BOOM, f"{EXTENSION}/__init__.py": BOOM, "torch/__init__.py": BOOM}
    python = interpreter(tmp_path, PACKAGES, {**common, **files})
    found = detect(python)
    assert found is not None
    assert (found.python, found.engine) == (python, engine)
    assert found.facts["bucket_limit"] == limit
    assert found.facts["software"] == "1.22"
    assert found.packages == PACKAGES
    made = find("auto", found)
    assert made.identity.python == python
    assert made.identity.facts["extension_kind"] == engine.removeprefix("vllm-fork@")


@pytest.mark.parametrize(
    ("packages", "engine"),
    [
        ({}, ""),
        ({"vllm": "0.11.0"}, ""),
        ({"vllm": "0.11.0+cpu"}, "cpu"),
        ({"vllm": "0.11.0", "vllm-gaudi": "0.11.0"}, "vllm-gaudi"),
    ],
)
def test_other_interpreters(packages: dict[str, str], engine: str, tmp_path: Path) -> None:
    found = detect(interpreter(tmp_path, packages, {"vllm/__init__.py": BOOM}))
    assert found is not None
    assert found.engine == engine


def test_the_commit_of_a_source_tree(tmp_path: Path) -> None:
    head = "a" * 40
    files = {
        "vllm/__init__.py": "",
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/refs/heads/main": head + "\n",
    }
    found = detect(interpreter(tmp_path, {}, files))
    assert found is not None
    assert found.facts["commit"] == head


@pytest.mark.parametrize("text", ["exit 3\n", "echo nonsense\n", "kill -9 $$\n"])
def test_an_interpreter_that_does_not_answer(text: str, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\n" + text)
    program.chmod(0o755)
    with raising("engines.python_bad"):
        detect(str(program))


def test_no_such_interpreter() -> None:
    with failing("engines.no_python", ExitCode.USAGE):
        detect("/no/such/python")


@given(st.text())
def test_any_answer(text: str) -> None:
    try:
        parse("/p", text)
    except LaunchError as error:
        assert str(error)


def test_the_program_for_the_interpreter_needs_only_the_standard_library() -> None:
    imported = set()
    for node in ast.walk(ast.parse(question())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported and imported <= sys.stdlib_module_names
