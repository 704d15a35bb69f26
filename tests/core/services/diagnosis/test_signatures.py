"""The table of signatures, and the causes that the end itself shows."""

from __future__ import annotations

from gaudi_launch.core.services.diagnosis.signatures import (
    EXCEPTION,
    KILLED,
    QUIT,
    STUCK,
    TERMINATED,
    signatures,
)


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
