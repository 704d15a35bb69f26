"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gaudi_launch.errors import LaunchError


@contextmanager
def refused(id: str) -> Iterator[None]:
    """A block that must end in this LaunchError."""
    with pytest.raises(LaunchError) as error:
        yield
    assert error.value.id == id
