"""Make profiles/engines/variables/NAME.json: the variables that an engine reads.

    python scripts/engine_variables.py REPOSITORY@COMMIT=FOLDER... >
    profiles/engines/variables/NAME.json

Each FOLDER is a package inside a checkout (``vllm``, ``vllm_hpu_extension``, ``vllm_gaudi``). The
syntax trees are read, nothing is imported. A variable counts as read where its name is

- the first argument of ``os.getenv``, ``environ.get`` or the extension's ``Env``, ``EnvFlag`` and
``Value``,
- a subscript of ``environ`` that is not assigned, or tested by ``in environ``,
- a key of ``environment_variables`` (the place is the table), or
- made by ``read_bucket_settings`` of its arguments.

Kept are the names that concern the engine and the libraries below it, each with the first place
that reads it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(
    r"^(VLLM|HABANA|PT|HCCL|HF|HUGGINGFACE|MODELSCOPE|RAY|OMP|GLOO|ENABLE|INC|QUANT|TRANSFORMERS|EXPERIMENTAL)"
    r"_[A-Z0-9_]+$"
)
_READERS = {"getenv", "Env", "EnvFlag"}
_TABLES = {"environment_variables"}
# the extension's bucketing/linear.py and its copies: (phase, dimension, min=, step=, max=)
_BUCKETS = "read_bucket_settings"


def reads_of(folder: Path) -> dict[str, str]:
    """Return each variable with the first place that reads it.

    A place is ``package/file.py:line``.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        if path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, line in sorted(_reads(tree), key=lambda read: read[1]):
            place = f"{path.relative_to(folder.parent)}:{line}"
            found.setdefault(name, place)
    return found


def _reads(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        for name in _names(node):
            if _NAME.match(name):
                yield name, getattr(node, "lineno", 1)


def _names(node: ast.AST) -> Iterator[str]:
    """Return the variables that this one node reads."""
    if isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Load) and _is_environ(node.value):
            yield from _text(node.slice)
    elif isinstance(node, ast.Compare):
        if _is_environ(node.comparators[0]) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield from _text(node.left)
    elif isinstance(node, ast.AnnAssign | ast.Assign):
        yield from _of_table(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if not node.args:
        return
    if name in _READERS or (
        name == "get" and isinstance(called, ast.Attribute) and _is_environ(called.value)
    ):
        yield from _text(node.args[0])
    elif name == _BUCKETS and len(node.args) > 1:
        yield from _of_buckets(node)
    elif name == "Value" and len("".join(_text(node.args[0]))) > 1:
        # vllm_hpu_extension/config.py, class Value: without env_var it is the name in capitals
        named = [word.value for word in node.keywords if word.arg == "env_var"]
        if named:
            yield from _text(named[0])
        else:
            yield from (f"VLLM_{text.upper()}" for text in _text(node.args[0]))


def _of_table(node: ast.AnnAssign | ast.Assign) -> Iterator[str]:
    """Return the keys of a table such as vllm/envs.py has."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = any(getattr(target, "id", "") in _TABLES for target in targets)
    if named and isinstance(node.value, ast.Dict):
        for key in node.value.keys:
            if key is not None:
                yield from _text(key)


def _of_buckets(node: ast.Call) -> Iterator[str]:
    """Return VLLM_<PHASE>_<DIMENSION>_BUCKET_<NAME> of one call of the bucket code."""
    phase, dimension = ("".join(_text(argument)) for argument in node.args[:2])
    for word in node.keywords:
        yield f"VLLM_{phase}_{dimension}_BUCKET_{word.arg}".upper()


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _is_environ(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def main(arguments: list[str]) -> None:
    """Print the table of these ``REPOSITORY@COMMIT=FOLDER``."""
    sources: dict[str, str] = {}
    variables: dict[str, str] = {}
    for argument in arguments:
        source, _, folder = argument.partition("=")
        path = Path(folder).resolve()
        sources[path.name] = source
        for name, place in reads_of(path).items():
            variables.setdefault(name, place)
    document = {"schema": 1, "sources": sources, "variables": dict(sorted(variables.items()))}
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
