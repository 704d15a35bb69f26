"""Wheel and source distribution: the short form of scripts/acceptance/install.py."""

from __future__ import annotations

import pytest

from tests.support.scripts import short_form

pytestmark = pytest.mark.e2e(engine=False)


def test_the_wheel_is_installed_runs_and_is_removed_without_a_trace() -> None:
    assert short_form("install").endswith("passed\n")
