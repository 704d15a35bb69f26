"""Users beside root: the short form of scripts/acceptance/second_user.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.other_users import missing
from tests.support.places import TOP
from tests.support.waiting import GENEROUS

SCRIPT = TOP / "scripts" / "acceptance" / "second_user.py"
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(missing()), reason=missing())]


def test_a_user_beside_root_is_refused_politely_and_shares_a_cache() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--short"],
        capture_output=True,
        text=True,
        timeout=3 * GENEROUS,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    wrong = {each["case"]: each["wrong"] for each in found["results"] if each["wrong"]}
    assert (wrong, found["left"], done.returncode) == ({}, [], 0)
