"""Server-sent events: what ends a line, an event, and the patience with one."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.bench.server_sent_events import Events, TooLong

MOST = 4 << 20


def test_many_short_lines_of_one_event_are_too_long_as_well() -> None:
    events = Events()
    assert events.feed(b"data: " + b"x" * (MOST - 10) + b"\n") == []
    assert events.feed(b"data: " + b"x" * 10 + b"\n") == []
    with pytest.raises(TooLong, match=f"over {MOST} bytes"):
        events.feed(b"data: x\n")
