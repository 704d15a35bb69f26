"""Requests as one replica receives them."""

from __future__ import annotations

from gaudi_launch.buckets.shared_prefixes import SharedPrefix
from gaudi_launch.capacity.traffic import from_trace

TRACE = [(10.0, 5, 50), (11.0, 7, 10), (14.0, 9, 30)]
SHARED = (SharedPrefix(0, 0), SharedPrefix(4, 100), SharedPrefix(8, 200))


def test_drawn_requests_keep_their_shared_beginnings() -> None:
    found = from_trace(TRACE, shared=SHARED)
    pairs = {
        (tokens, output, shared.tokens)
        for (_, tokens, output), shared in zip(found.requests, found.shared, strict=True)
    }
    assert pairs == {(5, 50, 0), (7, 10, 4), (9, 30, 8)}
    assert len(found.requests) == 40_000
    assert found.requests == from_trace(TRACE).requests
    assert found.requests != from_trace(TRACE, seed=1).requests
    assert from_trace(TRACE).shared == ()
