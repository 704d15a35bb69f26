"""``logs --json``: an object for programs, and an object per line while a log grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.services.state import store
from tests.support.cli import document, reading
from tests.support.service_record import service

pytestmark = pytest.mark.usefixtures("plain_english")


def ended_service(log: bytes) -> Path:
    folder = store.service_dir("demo")
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"name": "demo", "phase": "stopped"}))
    (folder / "engine.log").write_bytes(log)
    return folder


def test_a_log_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ended_service(b"one\ntwo\nthr\xff")
    shown = {"schema": 1, "name": "demo", "path": str(folder / "engine.log"), "begun": True}
    assert document(capsys, "logs", "demo") == (
        0,
        {**shown, "lines": ["one", "two", "thr\ufffd"]},
    )
    assert document(capsys, "logs", "demo", "-n", "1") == (
        0,
        {**shown, "lines": ["thr\ufffd"]},
    )


def test_a_followed_log_is_an_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    ended_service(b'one\n{"a": 1}\nrest')
    assert run(["logs", "demo", "-f", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"schema": 1, "line": text} for text in ("one", '{"a": 1}', "rest")]


def test_a_log_that_has_not_begun_has_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with service("demo", "http://127.0.0.1:1", phase="start") as folder:
        shown = reading(capsys, "logs", "demo")
    assert shown == {
        "schema": 1,
        "name": "demo",
        "path": str(folder / "engine.log"),
        "begun": False,
        "lines": [],
    }
