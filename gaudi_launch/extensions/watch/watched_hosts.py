"""Hosts that are watched at once: each in a thread, so that none delays another."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import IO

from gaudi_launch.core.base import codec, interrupt
from gaudi_launch.core.base.background import Loop, in_background
from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.hosts.inventory import LAUNCHER, Member
from gaudi_launch.extensions.watch.sample import HostSample
from gaudi_launch.extensions.watch.sampler import Sampler

_log = logging.getLogger(__name__)

# a host that went away is tried again after this time
_AGAIN_SECONDS = 5.0
# two readings of the CPU times and of the engines' counters
_SECOND_READING_SECONDS = 0.5
# the first screen is shown without the cards where hl-smi takes longer
_HL_SMI_SECONDS = 0.3
_LONGEST_LINE = 16 << 20


class WatchedHost:
    """One host: sampled here, or read from its own `top` over ssh."""

    def __init__(
        self, member: Member | None, machine: str | None, *, interval: float, timeout: float
    ) -> None:
        """Prepare a host; ``member`` None is this machine, or the one of ``machine``.

        Raises LaunchError (USAGE) for an unknown machine.
        """
        self.name = member.name if member is not None else ""
        self._interval = interval
        self._timeout = timeout
        self._lock = threading.Lock()
        # the newest sample, and when it came
        self._newest: HostSample | None = None
        self._newest_at = time.monotonic()
        self._problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._member = member
        self._sampler: Sampler | None = None
        if member is None:
            self._sampler = Sampler(machine, wait_seconds=_HL_SMI_SECONDS)
        elif str(member.snapshot or "").startswith(SIMULATED):
            # it is sampled here; the services are those of this machine, not of the simulated one
            self._member, self._sampler = None, Sampler(member.snapshot, found=list)
        if self._sampler is not None:
            self._loop = Loop(self._sample, interval, self._failed)
        else:
            self._loop = Loop(self._follow, _AGAIN_SECONDS, self._failed)

    def start(self) -> None:
        """Begin to watch, in the background."""
        self._loop.start()

    def stop(self) -> None:
        """End what was started; returns at once."""
        self._loop.stop()
        process = self._process
        if process is not None:
            interrupt.end_group(process)

    def now(self) -> HostSample | None:
        """Return the newest sample; a host without one says why after its timeout."""
        with self._lock:
            sample, at, problem = self._newest, self._newest_at, self._problem
        age = time.monotonic() - at
        if sample is not None and age <= self._timeout + self._interval:
            return self._named(sample)
        if problem is None and age <= self._timeout:
            return None
        return self.unknown(problem or text("watch.host_silent", seconds=f"{age:.0f}"))

    def unknown(self, why: str = "-") -> HostSample:
        """Return the sample of a host that is not known, and why."""
        return HostSample(self.name, time.time(), answers=False, problem=why)

    def once(self) -> HostSample:
        """Return one sample, of a remote host within its timeout."""
        if self._sampler is not None:
            return self._named(self._sampled_twice(self._sampler))
        assert self._member is not None
        # what reaches other hosts takes 0.1 s to import, and the first screen of this one is urgent
        from gaudi_launch.core.hosts import ssh

        try:
            output = ssh.words(
                _bare(self._member), [*_command(self._member), "--once"], self._timeout
            )
            return self._named(_hosts_of(output)[0])
        except ssh.RemoteError as error:
            why = error.why.render()
        except ValueError:
            why = text("watch.host_old", host=self.name)
        return self.unknown(why)

    def _sampled_twice(self, sampler: Sampler) -> HostSample:
        """Return the second sample, in which rates are known, when hl-smi has answered."""
        deadline = time.monotonic() + self._timeout
        sampler.sample()
        time.sleep(_SECOND_READING_SECONDS)
        sampler.wait(self._timeout)
        found = sampler.sample()
        while not found.cards_read and time.monotonic() < deadline and not sampler.is_complete:
            time.sleep(_SECOND_READING_SECONDS)
            found = sampler.sample()
        return found

    def _named(self, sample: HostSample) -> HostSample:
        if self.name:
            return replace(sample, host=self.name)
        return sample

    def _put(self, sample: HostSample) -> None:
        with self._lock:
            self._newest, self._newest_at, self._problem = sample, time.monotonic(), None

    def _fail(self, problem: str) -> None:
        with self._lock:
            self._problem = problem

    def _failed(self, error: Exception) -> None:
        self._fail(getattr(error, "strerror", None) or str(error) or type(error).__name__)

    def _sample(self) -> None:
        assert self._sampler is not None
        self._put(self._sampler.sample())

    def _follow(self) -> None:
        """Read the lines of the host's own `top` until it ends."""
        from gaudi_launch.core.hosts.steps import ssh_environment, ssh_words

        assert self._member is not None
        member = _bare(self._member)
        argv = ssh_words(member, [*_command(self._member), "--interval", f"{self._interval:g}"])
        child = ChildLog(_log, argv)
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if member.local else ssh_environment(os.environ),
            start_new_session=True,
        )
        child.started(process.pid)
        self._process = process
        errors: list[str] = []
        assert process.stdout is not None and process.stderr is not None
        drain = in_background(partial(_keep_last, process.stderr, errors))
        try:
            # it may have been stopped before this process was known
            while not self._loop.is_stopped and (line := process.stdout.readline(_LONGEST_LINE)):
                self._take(line)
        finally:
            interrupt.end_group(process)
            drain.join(1.0)
            child.ended(process.returncode)
        self._fail(errors[-1] if errors else text("watch.host_ended", status=process.returncode))

    def _take(self, line: str) -> None:
        try:
            self._put(_hosts_of(line)[0])
        except ValueError:
            self._fail(text("watch.host_old", host=self.name))


def _keep_last(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        if line.strip():
            lines[:] = [line.strip()[:300]]


def _bare(member: Member) -> Member:
    """Return the host outside its container, where its cards are."""
    return replace(member, enter=())


def _command(member: Member) -> list[str]:

    # this program itself, which need not be on the PATH of this machine
    here = member.local and member.launcher == LAUNCHER
    launcher = [sys.executable, "-m", "gaudi_launch"] if here else list(member.launcher)
    return [*launcher, "top", "--json"]


def _hosts_of(output: str) -> list[HostSample]:
    """Return the hosts of one JSON object of `top`.

    Raises ValueError for anything else."""
    document = parse_json(output)
    hosts = mapping(document).get("hosts")
    if not isinstance(hosts, list) or not hosts:
        raise ValueError("no hosts")
    return [codec.read(HostSample, each) for each in hosts]


@contextlib.contextmanager
def watching(hosts: Sequence[WatchedHost]) -> Iterator[None]:
    """Watch hosts in the background until the end of the block.

    SIGTERM and SIGHUP also end what was started, as Ctrl-C does.
    """
    with interrupt.raised(signal.SIGTERM, signal.SIGHUP):
        for host in hosts:
            host.start()
        try:
            yield
        finally:
            for host in hosts:
                host.stop()


def sample_all(hosts: Sequence[WatchedHost]) -> list[HostSample]:
    """Return one sample of each host, all taken at the same time."""
    found: dict[int, HostSample] = {}

    def look(number: int, host: WatchedHost) -> None:
        found[number] = host.once()

    threads = [in_background(partial(look, number, host)) for number, host in enumerate(hosts)]
    for thread in threads:
        while thread.is_alive():
            thread.join(interrupt.TURN_SECONDS)
    # the log has the reason of a failed sampling
    return [found.get(number) or host.unknown() for number, host in enumerate(hosts)]
