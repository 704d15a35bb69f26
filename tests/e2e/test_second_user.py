"""Users beside root: the short form of scripts/acceptance/second_user.py."""

from __future__ import annotations

import json

import pytest

from tests.support.scripts import short_form

pytestmark = [pytest.mark.root, pytest.mark.e2e(engine=False)]


def test_a_user_beside_root_is_refused_politely_and_shares_a_cache() -> None:
    assert json.loads(short_form("second_user"))["left"] == []
