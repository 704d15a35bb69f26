"""How the tests share the workers of one run: those with real engines go last, two at a time at most; and what
hypothesis may hold against a test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.support.turns import alone

# A busy machine makes any example slow, and that is no fault of the test. The same tree gets the same verdict each
# time; HYPOTHESIS_PROFILE=search looks for examples that nobody has seen.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
# the commands that the tests start need not read our sources anew each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# what an engine with its workers may need
_ENGINE_BYTES = 8 << 30


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests tell first whether anything is wrong at all."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


@pytest.fixture(autouse=True)
def few_real_engines_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """A real engine has one of its processes at work for most of its start: two, where they have room, start in
    little more time than one."""
    if request.node.get_closest_marker("e2e") is None:
        yield
        return
    roomy = (os.cpu_count() or 1) > 1 and psutil.virtual_memory().available > _ENGINE_BYTES
    with alone("e2e", 2 if roomy else 1):
        yield


@pytest.fixture
def only_orphans() -> Iterator[None]:
    """``stop --orphans --yes`` ends all of this machine: whoever runs it, or has some to look at, asks for this."""
    with alone("orphans"):
        yield
