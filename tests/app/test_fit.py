"""fit: products and instances by name, types, lengths, and what has no size."""

from __future__ import annotations

import pytest

from gaudi_launch.app import fit as cases
from gaudi_launch.app import machine
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host

pytestmark = pytest.mark.usefixtures("plain_english")


# --- products ------------------------------------------------------------------------------------


def test_a_machine_that_cannot_be_read_counts_as_gaudi2(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str | None = None) -> Host:
        raise LaunchError("services.drain", ExitCode.MACHINE, found=1)

    monkeypatch.setattr(machine, "load", fail)
    assert cases.own_accelerator() == "gaudi2"


# --- types and lengths ---------------------------------------------------------------------------


# --- models and engines --------------------------------------------------------------------------
