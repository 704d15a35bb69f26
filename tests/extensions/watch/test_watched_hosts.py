"""Several hosts at once: their own `top`, one that hangs, one that fails."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.extensions.watch.sample import HostSample
from gaudi_launch.extensions.watch.watched_hosts import WatchedHost, sample_all, watching
from tests.support.waiting import GENEROUS
from tests.support.watched import HOST

DOCUMENT = json.dumps({"schema": 1, "hosts": [codec.write(HOST)]})


def launcher(folder: Path, name: str, body: str) -> Member:
    """Return a host whose gaudi-launch is this program."""
    program = folder / name
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Member(name=name, ssh=f"user@{name}", launcher=(str(program),))


@pytest.fixture(autouse=True)
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an ssh on the PATH that runs the command here, by the shell that a server would use."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
def good(tmp_path: Path) -> Member:
    once = f"print({DOCUMENT!r}, flush=True)"
    return launcher(tmp_path, "good", f"{once}\nif '--once' not in sys.argv: time.sleep(60)")


@pytest.fixture
def hanging(tmp_path: Path) -> Member:
    return launcher(tmp_path, "hanging", "time.sleep(60)")


@pytest.fixture
def failing(tmp_path: Path) -> Member:
    return launcher(tmp_path, "failing", "sys.exit('no route to host')")


def watch(member: Member | None, timeout: float = 1.0) -> WatchedHost:
    return WatchedHost(member, None, interval=0.5, timeout=timeout)


def until_known(host: WatchedHost) -> HostSample:
    deadline = time.monotonic() + GENEROUS
    while (found := host.now()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_once_is_as_slow_as_the_timeout_of_the_slowest(
    good: Member, hanging: Member, failing: Member
) -> None:
    began = time.monotonic()
    found = sample_all([watch(member, 5.0) for member in (good, hanging, failing)])
    assert 5 <= time.monotonic() - began < GENEROUS / 2
    assert [(host.host, host.answers, len(host.cards)) for host in found] == [
        ("good", True, 8),
        ("hanging", False, 0),
        ("failing", False, 0),
    ]
    assert "no route to host" in str(found[2].problem)


def test_a_host_that_hangs_delays_no_other_and_is_named(good: Member, hanging: Member) -> None:
    hosts = [watch(good), watch(hanging)]
    for host in hosts:
        host.start()
    try:
        assert until_known(hosts[0]).cards == HOST.cards
        silent = until_known(hosts[1])
        assert (silent.host, silent.answers) == ("hanging", False)
        assert str(silent.problem).startswith("no answer for")
    finally:
        for host in hosts:
            host.stop()


@pytest.mark.parametrize("output", ["", "[]", "{}", '{"hosts": []}', '{"hosts": [3]}', "hello"])
def test_another_version_is_named_as_such(tmp_path: Path, output: str) -> None:
    member = launcher(tmp_path, "old", f"print({output!r})")
    found = watch(member, 20.0).once()
    assert found.answers is False and "no 'top --json'" in str(found.problem)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("sys.exit(7)", text("watch.host_ended", status=7)),
        ("print('first\\n' + 'x' * 400 + '\\n ', file=sys.stderr)", "x" * 300),
        ("print('hello', flush=True)\ntime.sleep(60)", text("watch.host_old", host="bad")),
    ],
)
def test_the_reason_of_a_host_without_samples(tmp_path: Path, body: str, problem: str) -> None:
    host = watch(launcher(tmp_path, "bad", body), 2 * GENEROUS)
    with watching([host]):
        assert until_known(host).problem == problem


def test_a_host_that_was_stopped_meanwhile_is_ended_at_once(
    good: Member, caplog: pytest.LogCaptureFixture
) -> None:
    host = watch(good)
    host.stop()
    began = time.monotonic()
    host._follow()
    assert time.monotonic() - began < 30
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_what_was_started_ends_with_a_program_that_is_asked_to_end(hanging: Member) -> None:
    host = watch(hanging)
    with pytest.raises(KeyboardInterrupt), watching([host]):
        until_known(host)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GENEROUS)
    assert host._process is not None
    assert host._process.wait(GENEROUS) != 0
