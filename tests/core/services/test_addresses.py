"""Checks before an engine starts: the address."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.services.addresses import check_port
from tests.support.refusals import refused


def test_an_address_that_this_machine_lacks_is_named(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    # RFC 5737: an address of examples
    values = {"host": "192.0.2.1", "port": 4000, "why": "Cannot assign requested address"}
    with refused("serve.bad_host", ExitCode.MACHINE, **values):
        check_port("http://192.0.2.1:4000")
