"""Checks before an engine starts: the model's files, the address, the hand-over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.services import preflight
from gaudi_launch.services.preflight import check_port


def refused(what: Any, *words: Any) -> tuple[str, ExitCode, dict[str, Any]]:
    with pytest.raises(LaunchError) as caught:
        what(*words)
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Return what the port's checks answer, and what they were asked."""
    found: dict[str, Any] = {"free": True, "asked": []}
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))

    def port_free(host: str, port: int) -> bool:
        found["asked"].append((host, port))
        if isinstance(found["free"], OSError):
            raise found["free"]
        return bool(found["free"])

    monkeypatch.setattr(preflight, "port_free", port_free)
    monkeypatch.setattr(preflight, "holder", lambda port: "python3 (pid 7)")
    monkeypatch.setattr(preflight, "free_port", lambda host, after, root: after + 1)
    return found


def test_an_address_that_this_machine_lacks_is_named(port: dict[str, Any]) -> None:
    port["free"] = OSError(99, "Cannot assign requested address")
    assert refused(check_port, "http://10.9.9.9:4000") == (
        "serve.bad_host",
        ExitCode.MACHINE,
        {"host": "10.9.9.9", "port": 4000, "why": "Cannot assign requested address"},
    )
