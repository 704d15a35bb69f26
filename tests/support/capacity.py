"""Helpers of the capacity tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gaudi_launch.errors import LaunchError


@contextmanager
def refused(id: str) -> Iterator[None]:
    """Check that the block raises this LaunchError."""
    with pytest.raises(LaunchError) as error:
        yield
    assert error.value.id == id
