"""Every option of a command reaches its use case, and what is not given has its default.

A command in the recorded file is followed by the function that it calls, with arguments: fields
that have their default are left out. UPDATE_GOLDEN=1 writes the arguments. Options that are fields
of a record are in test_record_options.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.commands.render.case import RenderTarget
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from tests.support.cli import golden
from tests.support.places import DATA

pytestmark = pytest.mark.usefixtures("plain_english")

_NAME = "given-options.txt"
_CASE = re.compile(r"^\$ (.*)\n([\w.]+)\.(\w+)\(", re.MULTILINE)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _shown(argument: Any) -> str:
    """Return an argument as text: fields without their defaults, "..." for a function."""
    if isinstance(argument, RenderTarget):
        return type(argument).__name__
    if is_dataclass(argument):
        given = (
            each for each in fields(argument) if getattr(argument, each.name) != _default(each)
        )
        parts = [f"{each.name}={_shown(getattr(argument, each.name))}" for each in given]
        return f"{type(argument).__name__}({', '.join(parts)})"
    return "..." if callable(argument) else repr(argument)


def _call(arguments: Iterable[Any], named: dict[str, Any]) -> str:
    counted = [_shown(each) for each in arguments if not isinstance(each, Terminal)]
    return ", ".join((*counted, *(f"{name}={_shown(each)}" for name, each in named.items())))


def test_every_option_reaches_its_use_case(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def called(*arguments: Any, **named: Any) -> None:
        calls.append(_call(arguments, named))
        raise LaunchError("common.interrupted", ExitCode.MODEL)

    text = ""
    for line, module, function in _CASE.findall((DATA / "golden" / _NAME).read_text("utf-8")):
        import_module(f"gaudi_launch.{module}")
        with monkeypatch.context() as replaced:
            replaced.setattr(sys.modules[f"gaudi_launch.{module}"], function, called)
            assert run(shlex.split(line)) == ExitCode.MODEL, line
        text += f"$ {line}\n{module}.{function}({calls.pop()})\n"
        assert calls == []
    # the path of this environment's program, and who runs the tests
    text = re.sub(r"launcher='[^']+'", "launcher=...", text)
    text = re.sub(r"(?:, )?run_as='(?!me')[^']+'", "", text)
    golden(_NAME, text.replace("(, ", "("))
