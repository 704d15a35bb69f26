"""Hosts that are watched, without processes and threads: commands, reasons and times."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.extensions.watch import watched_hosts as module
from gaudi_launch.extensions.watch.sample import HostSample
from gaudi_launch.extensions.watch.watched_hosts import WatchedHost, watching
from tests.support.waiting import until
from tests.support.watched import HOST

DOCUMENT = json.dumps({"schema": 1, "hosts": [codec.write(HOST)]})
REMOTE = Member(
    "gaudi-9", "user@gaudi-9", enter=("docker", "exec", "engine"), launcher=("uvx", "gaudi-launch")
)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stop the clocks; the monotonic one is the first number."""
    now = [100.0]
    monkeypatch.setattr(
        module,
        "time",
        SimpleNamespace(monotonic=lambda: now[0], time=lambda: 1.5e9, sleep=lambda seconds: None),
    )
    return now


def watched() -> WatchedHost:
    return WatchedHost(REMOTE, None, interval=2.0, timeout=5.0)


def silent(problem: str) -> HostSample:
    """Return what is known of a host that does not answer."""
    return HostSample("gaudi-9", 1.5e9, answers=False, problem=problem)


def test_the_reason_of_a_failure_is_shown_when_the_sample_is_old(
    stopped_clock: list[float],
) -> None:
    host = watched()
    host._take(DOCUMENT)
    host._fail("no route to host")
    # a sample that is new enough stays
    assert host.now() == replace(HOST, host="gaudi-9")
    stopped_clock[0] = 110.0
    assert host.now() == silent("no route to host")
    host._take(DOCUMENT)
    assert host.now() == replace(HOST, host="gaudi-9")
    stopped_clock[0] = 120.0
    assert host.now() == silent(text("watch.host_silent", seconds="10"))
    host._take("hello")
    assert host.now() == silent(text("watch.host_old", host="gaudi-9"))


def test_a_host_is_watched_through_any_error() -> None:
    host = WatchedHost(None, "simulated:hls2", interval=0.01, timeout=5.0)
    turns = iter(
        (ValueError("NaN"), LaunchError("placement.none_free", ExitCode.MACHINE, holders="-"))
    )

    class Sampled:
        def sample(self) -> HostSample:
            error = next(turns, None)
            if error is not None:
                raise error
            return HOST

    host._sampler = Sampled()  # type: ignore[assignment]
    with watching([host]):
        until(lambda: host.now() == HOST, "a sample")
    assert next(turns, None) is None


def test_a_first_sample_waits_for_hl_smi(stopped_clock: list[float]) -> None:
    read = iter((False, False, False, True))

    class Slow:
        is_complete = False
        waited: float | None = None

        def sample(self) -> HostSample:
            stopped_clock[0] += 1
            return replace(HOST, cards_read=next(read, False))

        def wait(self, seconds: float) -> None:
            self.waited = seconds

    slow: Any = Slow()
    # the second sample has no cards, the fourth has
    assert watched()._sampled_twice(slow).cards_read is True
    assert (slow.waited, stopped_clock[0]) == (5.0, 104.0)
    # for the timeout at most
    assert watched()._sampled_twice(slow).cards_read is False
    assert stopped_clock[0] == 109.0
    slow.is_complete = True
    watched()._sampled_twice(slow)
    assert stopped_clock[0] == 111.0
