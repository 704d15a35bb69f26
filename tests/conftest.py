"""How the tests share the workers of one run: those with real engines go last, one at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests tell first whether anything is wrong at all."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


@pytest.fixture(autouse=True)
def one_real_engine_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Two engines would share two cores, and the environment that the first of them makes."""
    if request.node.get_closest_marker("e2e") is None:
        yield
        return
    with (Path(tempfile.gettempdir()) / "gaudi-launch-e2e.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
