"""How the tests share the workers of one run: those with real engines go first, one after the other."""

from __future__ import annotations

import pytest

# tests that act on what earlier ones of their file left
IN_ORDER = ("test_readme.py",)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real engines are the longest road, and two at once would share two cores and one environment to make."""
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.xdist_group("e2e"))
        elif item.path.name in IN_ORDER:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
