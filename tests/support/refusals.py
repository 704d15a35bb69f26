"""Errors that a user causes, with all of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError


@contextmanager
def failing(id: str, code: ExitCode) -> Iterator[pytest.ExceptionInfo[LaunchError]]:
    """Expect this error; what is yielded has it after the block."""
    with pytest.raises(LaunchError) as raised:
        yield raised
    assert (raised.value.id, raised.value.exit_code) == (id, code)


@contextmanager
def refused(id: str, code: ExitCode, **values: Any) -> Iterator[None]:
    """Expect this error with exactly these values, and a text for it."""
    with failing(id, code) as raised:
        yield
    assert dict(raised.value.text.values) == values
    assert id not in str(raised.value)


@contextmanager
def raising(id: str) -> Iterator[pytest.ExceptionInfo[LaunchError]]:
    """Expect this error with any exit code; what is yielded has it afterwards."""
    with pytest.raises(LaunchError) as raised:
        yield raised
    assert raised.value.id == id


def refusal(
    what: Callable[..., object], *words: Any, **more: Any
) -> tuple[str, ExitCode, dict[str, Any]]:
    """Return the error of a call, which has a text: its ID, exit code and values."""
    with pytest.raises(LaunchError) as raised:
        what(*words, **more)
    assert str(raised.value)
    return raised.value.id, raised.value.exit_code, dict(raised.value.text.values)
