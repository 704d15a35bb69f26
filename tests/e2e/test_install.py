"""Wheel and source distribution: the short form of scripts/acceptance/install.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import TOP
from tests.support.waiting import GENEROUS

SCRIPT = TOP / "scripts" / "acceptance" / "install.py"
pytestmark = pytest.mark.e2e


def test_the_wheel_is_installed_runs_and_is_removed_without_a_trace() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--short"],
        capture_output=True,
        text=True,
        timeout=2 * GENEROUS,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    built, installed, passed = done.stdout.splitlines()
    assert built.startswith("built: gaudi_launch-")
    assert installed.endswith("removed without a trace")
    assert passed == "passed"
