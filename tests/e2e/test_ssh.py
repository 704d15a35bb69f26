"""Two real sshd: the short form of scripts/acceptance/ssh.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.places import TOP
from tests.support.ssh_hosts import missing
from tests.support.waiting import GENEROUS

SCRIPT = TOP / "scripts" / "acceptance" / "ssh.py"
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(missing()), reason=missing())]


def test_faults_of_ssh_are_named_in_time_and_leave_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--short"],
        capture_output=True,
        text=True,
        timeout=2 * GENEROUS,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    wrong = {each["case"]: each["wrong"] for each in found["results"] if each["wrong"]}
    assert (wrong, found["left"], done.returncode) == ({}, [], 0)
