"""Server-sent events: what ends a line, an event, and the patience with one."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.bench.server_sent_events import Events, TooLong

MOST = 4 << 20


def test_an_event_ends_with_an_empty_line_of_any_form() -> None:
    events = Events()
    assert events.feed(b"data: a\r") == []
    assert events.feed(b"\n\r\ndata: b\r\r") == ["a", "b"]
    assert events.feed(b"\ndata:  c\nid: 1\ndata\n\n\n: d\n\n") == [" c\n"]
    assert events.feed(b"data: e\n") == []
    assert events.feed(b"") == []
    assert events.feed(b"\n") == ["e"]


def test_an_event_of_too_many_bytes_has_no_end() -> None:
    assert Events().feed(b"data: " + b"x" * (MOST - 6)) == []
    with pytest.raises(TooLong, match=f"over {MOST} bytes"):
        Events().feed(b"data: " + b"x" * (MOST - 5))


def test_many_short_lines_of_one_event_are_too_long_as_well() -> None:
    events = Events()
    assert events.feed(b"data: " + b"x" * (MOST - 10) + b"\n") == []
    assert events.feed(b"data: " + b"x" * 10 + b"\n") == []
    with pytest.raises(TooLong, match=f"over {MOST} bytes"):
        events.feed(b"data: x\n")
