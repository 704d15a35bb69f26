"""The record of a conversion."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.models.fp8.conversion_record import is_recorded, read_record


@pytest.mark.parametrize(
    ("text", "found", "complete"),
    [
        ('{"complete": true, "shards": {"é": 1}}', {"complete": True, "shards": {"é": 1}}, True),
        ('{"complete": 1}', {"complete": 1}, False),
        ('{"shards": {}}', {"shards": {}}, False),
        ("[]", {}, False),
        ("[", {}, False),
        (None, {}, False),
    ],
)
def test_records(tmp_path: Path, text: str | None, found: object, complete: bool) -> None:
    if text is not None:
        (tmp_path / ".gaudi-launch.json").write_text(text, encoding="utf-8")
    assert (read_record(tmp_path), is_recorded(tmp_path)) == (found, complete)
