"""Two real sshd: the short form of scripts/acceptance/ssh.py."""

from __future__ import annotations

import json

import pytest

from tests.support.scripts import short_form

pytestmark = [pytest.mark.root, pytest.mark.e2e(engine=False)]


def test_faults_of_ssh_are_named_in_time_and_leave_nothing() -> None:
    assert json.loads(short_form("ssh"))["left"] == []
