"""Errors that a user causes, with all of their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError


@contextmanager
def refused(id: str, code: ExitCode, **values: Any) -> Iterator[None]:
    """Expect this error with exactly these values, and a text for it."""
    with pytest.raises(LaunchError) as raised:
        yield
    error = raised.value
    assert (error.id, error.exit_code, dict(error.text.values)) == (id, code, values)
    assert error.id not in str(error)
