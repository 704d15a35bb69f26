"""``wait --json``: one object when the service is ready."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import reading
from tests.support.service_record import service

pytestmark = pytest.mark.usefixtures("plain_english")


def test_waiting_ends_in_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    with service("demo", "http://127.0.0.1:1") as folder:
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps({**state, "served": "m"}))
        shown = reading(capsys, "wait", "demo")
    waited = shown.pop("waited_seconds")
    assert isinstance(waited, float) and waited >= 0
    assert shown == {
        "schema": 1,
        "name": "demo",
        "phase": "ready",
        "model": "m",
        "url": "http://127.0.0.1:1",
    }
