"""Helpers of the capacity tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gaudi_launch.capacity import traffic
from gaudi_launch.errors import LaunchError

# the numbers of requests that a replica is simulated with
_AMOUNTS = ("_STEPS", "_FEWEST", "_MOST", "_USUAL", "_FORGETTING")
_FEWER = 8


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an eighth of the requests.

    Latencies are less exact; all else is the same.
    """
    for name in _AMOUNTS:
        monkeypatch.setattr(traffic, name, getattr(traffic, name) // _FEWER)


@contextmanager
def refused(id: str) -> Iterator[None]:
    """Check that the block raises this LaunchError."""
    with pytest.raises(LaunchError) as error:
        yield
    assert error.value.id == id
