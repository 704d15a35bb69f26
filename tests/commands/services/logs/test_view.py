"""A log for programs: one object, or one for each line as soon as that is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.commands.services.logs.view import LineObjects, log_json


def test_a_log_is_one_object() -> None:
    document = {"schema": 1, "name": "chat", "path": "/l", "begun": True}
    assert log_json("chat", Path("/l"), b"one\r\ntw\xffo\n\nend") == {
        **document,
        "lines": ["one", "tw\ufffdo", "", "end"],
    }
    assert log_json("chat", Path("/l"), b"") == {**document, "lines": []}
    assert log_json("chat", Path("/l"), None) == {**document, "begun": False, "lines": []}


def test_a_line_is_printed_when_it_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    objects = LineObjects()

    def lines() -> list[str]:
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert all(each.keys() == {"schema", "line"} and each["schema"] == 1 for each in found)
        return [each["line"] for each in found]

    objects.write(b"one\r\ntwo\nthr")
    assert lines() == ["one", "two"]
    objects.write(b"")
    objects.write(b"ee\n\nla\xffst")
    assert lines() == ["three", ""]
    objects.close()
    assert lines() == ["la\ufffdst"]
    objects.close()
    assert lines() == []
