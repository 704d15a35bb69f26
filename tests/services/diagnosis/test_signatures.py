"""The table of signatures, and the causes that the end itself shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.reader import parse_yaml
from gaudi_launch.services.diagnosis import signatures as table
from gaudi_launch.services.diagnosis.signatures import (
    EXCEPTION,
    KILLED,
    QUIT,
    STUCK,
    TERMINATED,
    Signature,
    signatures,
)


def test_an_entry_of_the_table_is_read_with_all_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signatures.yaml").write_text(
        """
schema: 1
signatures:
  - id: slow
    patterns: [one, 两]
    rank: 7
    permanent: true
    source: a document
    commands: [top, ps]
    slows: true
  - id: bare
    patterns: [three]
    rank: 0
    permanent: false
    source: assumed
""",
        encoding="utf-8",
    )
    monkeypatch.setattr(table, "shipped", lambda name: parse_yaml((tmp_path / name).read_bytes()))
    signatures.cache_clear()
    try:
        assert signatures() == (
            Signature("slow", ("one", "两"), 7, True, "a document", ("top", "ps"), slows=True),
            Signature("bare", ("three",), 0, False, "assumed", (), slows=False),
        )
    finally:
        signatures.cache_clear()


def test_a_command_that_a_cause_proposes_is_that_of_the_table() -> None:
    known = {each.id: each for each in signatures()}
    assert known["device_oom"].commands == ("gaudi-launch fit MODEL",)
    assert known["memory_share"].commands == ("free -h", "gaudi-launch devices")
    assert known["shard_failed"].commands == ()


def test_the_causes_that_no_line_shows_have_a_source_and_a_safe_restart() -> None:
    own = (KILLED, STUCK, TERMINATED, EXCEPTION, QUIT)
    # from the likeliest on; each is less likely than what a line shows about a card
    assert min(each.rank for each in signatures() if each.id.startswith("device_")) > KILLED.rank
    assert [(each.id, each.rank) for each in own] == [
        ("killed", 30),
        ("stuck", 25),
        ("terminated", 20),
        ("exception", 18),
        ("quit", 10),
    ]
    assert [each.source for each in own] == [
        "signal(7); bash(1) and its zh_CN catalogue",
        "assumed: no line of its log for the phase's time limit",
        "signal(7)",
        "the log's first traceback; of an engine that was up, its last",
        "exit status 0 of an engine that was not stopped",
    ]
    assert [each.commands for each in own] == [("dmesg | tail",), ("top",), (), (), ()]
    assert not any(each.permanent or each.slows for each in own)
    assert [each.id for each in own if each.patterns] == ["killed"]
