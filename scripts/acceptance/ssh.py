"""Run `cluster` and `top` against two real sshd, with faults of networks.

`ssh.py [--short] [CASE ...]` needs root, ip, iptables and openssh-server. Two hosts and the
launcher have network namespaces (tests/support/ssh_hosts.py); the engine is a stand-in without
Ray. Each case states the exit code, the sentence and the longest time, and what may remain. After
the last one nothing may remain: no process, no record, no control socket. Prints one JSON object;
the exit status is 0 when everything was as stated. The short form takes 25 seconds.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.acceptance import Suite, Unexpected, check_shown
from tests.support.ssh_hosts import Ended, SshHosts, ended, missing

STATUS = ("cluster", "status")
DOWN = ("cluster", "down")
# from the documented limits: 10 s to connect, 45 s of silence, 60 s for an answer, 5 lost answers
_STARTUP_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_NOTICE_SECONDS = 10.0
_LEASE_SECONDS = 600.0
_SILENT_SECONDS = 60.0
_LOST_SECONDS = 5 * (_CONNECT_SECONDS + 3.0)


@dataclass(frozen=True)
class Wanted:
    """The end of a command: exit code, parts of its output, longest time in seconds."""

    code: int
    texts: tuple[str, ...]
    seconds: float = _STARTUP_SECONDS


def expect(found: Ended, began: float, wanted: Wanted) -> None:
    """Compare the end of a command. Raises Unexpected."""
    took = time.monotonic() - began
    shown = " ".join((found.output + found.errors).split())
    check_shown(shown, found.code, wanted.code, wanted.texts)
    if took > wanted.seconds:
        raise Unexpected(f"{took:.0f} s, expected at most {wanted.seconds:.0f} s")


def check(hosts: SshHosts, words: tuple[str, ...], wanted: Wanted, **variables: str) -> Ended:
    """Run a command of the launcher and compare its end. Raises Unexpected."""
    began = time.monotonic()
    found = hosts.launch(*words, seconds=600.0, **variables)
    expect(found, began, wanted)
    return found


def nothing_left(hosts: SshHosts) -> None:
    """Raise Unexpected if anything remains.

    A host takes a moment to notice a closed connection.
    """
    deadline = time.monotonic() + _NOTICE_SECONDS
    left = hosts.left()
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = hosts.left()
    if left:
        raise Unexpected(f"left: {left}")


def refused(hosts: SshHosts, *texts: str) -> None:
    """Check that `up` refuses with these texts, and starts nothing."""
    check(hosts, tuple(hosts.up_words()), Wanted(3, texts))
    nothing_left(hosts)


def up_and_down(hosts: SshHosts) -> None:
    """Start both engines, look at them, stop them."""
    check(hosts, tuple(hosts.up_words()), Wanted(0, (":31007 is ready",), 60.0))
    check(hosts, STATUS, Wanted(0, ("host-a", "host-b", "is ready")))
    check(hosts, DOWN, Wanted(0, ("host-a: service stopped", "host-b: service stopped")))
    nothing_left(hosts)


def unknown_key(hosts: SshHosts) -> None:
    hosts.trust("a")
    refused(hosts, "host-b cannot be reached (ssh b): its host key", "fingerprint: ssh b")


def changed_key(hosts: SshHosts) -> None:
    hosts.new_host_key("b")
    hosts.serve("b")
    refused(hosts, "has changed", f"ssh-keygen -R {hosts.address('b')}")


def wrong_key(hosts: SshHosts) -> None:
    config = hosts.folder / "config"
    config.write_text(config.read_text().replace(f"{hosts.folder}/user\n", "/no/such/key\n"))
    refused(hosts, "host-a refused the login", "Permission denied", "ssh-copy-id a")


def password_only(hosts: SshHosts) -> None:
    """Refuse a server that accepts passwords only, without a window for one."""
    hosts.serve("a", "PubkeyAuthentication no")
    hosts.configure({"b": ["ProxyJump a"]})
    window = hosts.folder / "window"
    window.write_text(f"#!/bin/sh\ntouch {hosts.folder}/window-opened\nexec sleep 600\n")
    window.chmod(0o755)
    variables = {"DISPLAY": ":9", "SSH_ASKPASS": str(window)}
    words = tuple(hosts.up_words())
    check(hosts, words, Wanted(3, ("host-a refused", "host-b refused")), **variables)
    if (hosts.folder / "window-opened").exists():
        raise Unexpected("a window opened for a password")
    nothing_left(hosts)


def jump_host(hosts: SshHosts) -> None:
    """Reach b through a, with settings of a user that disturb a program."""
    (hosts.folder / "masters").mkdir(exist_ok=True)
    mine = [
        *("ControlMaster auto", "ControlPersist 60", f"ControlPath {hosts.folder}/masters/%C"),
        *("RequestTTY force", "RemoteCommand bash", "LocalForward 9999 localhost:99"),
        "ExitOnForwardFailure yes",
    ]
    # the connection to the jump host itself is the user's own
    hosts.configure({"b": ["ProxyCommand ssh -o RemoteCommand=none -o ControlMaster=no "
                           "-o ClearAllForwardings=yes -W %h:%p a", *mine]})  # fmt: skip
    up_and_down(hosts)
    hosts.configure({"b": ["ProxyJump a"]})
    up_and_down(hosts)


def stopped_server(hosts: SshHosts) -> None:
    """Give up a host whose kernel accepts and whose sshd does not answer."""
    hosts.stop_servers("b")
    try:
        refused(hosts, "host-b cannot be reached", "timed out", "ssh -o BatchMode=yes b true")
    finally:
        hosts.continue_servers("b")


def dropped_packets(hosts: SshHosts) -> None:
    hosts.drop("b")
    try:
        refused(hosts, "host-b cannot be reached", "timed out")
    finally:
        hosts.drop("b", drop=False)


def top_of_a_dead_host(hosts: SshHosts) -> None:
    """Show one host at once while the other hangs."""
    words = ("top", "--inventory", str(hosts.inventory_of_cards()), "--timeout", "3")
    check(hosts, (*words, "--once"), Wanted(0, ("host-a",)))
    hosts.stop_servers("b")
    try:
        shown = check(hosts, (*words, "--once", "--json"), Wanted(0, (), 20.0))
        answers = {host["host"]: host["answers"] for host in json.loads(shown.output)["hosts"]}
        if answers != {"host-a": True, "host-b": False}:
            raise Unexpected(f"answers: {answers}")
        process = hosts.start(*words, "--json")
        assert process.stdout is not None
        began = time.monotonic()
        first = json.loads(process.stdout.readline())
        process.terminate()
        ended(process, 30)
        if time.monotonic() - began > 20 or not first["hosts"][0]["answers"]:
            raise Unexpected("the first line came late")
    finally:
        hosts.continue_servers("b")
    nothing_left(hosts)


def fails_after(
    hosts: SshHosts, marker: str, fault: Callable[[], None], wanted: Wanted, pause: float = 0.0
) -> None:
    """Cause a fault when `up` prints a text; compare its end from then on."""
    process = hosts.start(*hosts.up_words("--", "--never-ready"))
    assert process.stderr is not None
    shown = ""
    for line in process.stderr:
        shown += line
        if marker in line:
            break
    time.sleep(pause)
    fault()
    began = time.monotonic()
    found = ended(process, 600)
    expect(Ended(found.code, found.output, shown + found.errors), began, wanted)
    if hosts.processes("here") or hosts.processes("a") or hosts.records("a"):
        raise Unexpected(f"left: {hosts.left()}")


def _lost(hosts: SshHosts, seconds: float, *texts: str) -> Wanted:
    report = ("host-b cannot be reached", "Processes on host-b may still be running")
    return Wanted(3, (*report, *texts), seconds + 2 * _CONNECT_SECONDS + _STARTUP_SECONDS)


def after_the_fault(hosts: SshHosts) -> None:
    """Clean the host with `down` when it is back."""
    check(hosts, DOWN, Wanted(0, ()))
    nothing_left(hosts)


def cut_while_waiting(hosts: SshHosts) -> None:
    marker = f"Waiting for http://{hosts.address('b')}"
    fails_after(
        hosts, marker, lambda: hosts.cut("b"), _lost(hosts, _SILENT_SECONDS + _LOST_SECONDS)
    )
    check(hosts, STATUS, Wanted(1, ("host-b cannot be reached",)))
    check(hosts, DOWN, Wanted(1, ("host-b cannot be reached",)))
    hosts.join("b")
    after_the_fault(hosts)


def cut_in_a_start(hosts: SshHosts) -> None:
    fails_after(
        hosts,
        "Start the engine on host-b",
        lambda: hosts.cut("b"),
        _lost(hosts, _SILENT_SECONDS),
        pause=0.8,
    )
    hosts.join("b")
    after_the_fault(hosts)


def stopped_while_waiting(hosts: SshHosts) -> None:
    marker = f"Waiting for http://{hosts.address('b')}"
    wanted = _lost(hosts, _SILENT_SECONDS + _LOST_SECONDS)
    try:
        fails_after(hosts, marker, lambda: hosts.stop_servers("b"), wanted)
    finally:
        hosts.continue_servers("b")
    after_the_fault(hosts)


def reset_while_waiting(hosts: SshHosts) -> None:
    marker = f"Waiting for http://{hosts.address('b')}"
    fails_after(
        hosts, marker, lambda: hosts.end_server("b"), _lost(hosts, _LOST_SECONDS, "refused")
    )
    hosts.serve("b")
    after_the_fault(hosts)


def cut_for_good(hosts: SshHosts) -> None:
    """Find nothing on a host that was lost and never came back, after the lease."""
    marker = f"Waiting for http://{hosts.address('b')}"
    fails_after(
        hosts, marker, lambda: hosts.cut("b"), _lost(hosts, _SILENT_SECONDS + _LOST_SECONDS)
    )
    deadline = time.monotonic() + _LEASE_SECONDS + _NOTICE_SECONDS
    while hosts.processes("b") or hosts.records("b"):
        if time.monotonic() > deadline:
            raise Unexpected(f"left after the lease: {hosts.left()}")
        time.sleep(1.0)
    hosts.join("b")
    check(hosts, DOWN, Wanted(0, ("No process of this cluster was running",)))
    nothing_left(hosts)


SHORT: tuple[Callable[[SshHosts], None], ...] = (
    unknown_key,
    changed_key,
    password_only,
    stopped_server,
)
CASES: tuple[Callable[[SshHosts], None], ...] = (
    up_and_down,
    *SHORT,
    wrong_key,
    jump_host,
    dropped_packets,
    top_of_a_dead_host,
    cut_while_waiting,
    cut_for_good,
    cut_in_a_start,
    stopped_while_waiting,
    reset_while_waiting,
)


def run(hosts: SshHosts, case: Callable[[SshHosts], None]) -> None:
    """Run one case on hosts in order."""
    hosts.serve("a")
    hosts.serve("b")
    hosts.configure()
    case(hosts)


@contextlib.contextmanager
def two_hosts(short: bool, left: list[str]) -> Iterator[SshHosts]:
    """Yield the hosts; ``left`` gets what remains on them."""
    with tempfile.TemporaryDirectory(prefix="gl-ssh-") as folder:
        hosts = SshHosts(Path(folder))
        try:
            hosts.make()
            yield hosts
            left += hosts.left()
        finally:
            hosts.clear()


if __name__ == "__main__":
    sys.exit(Suite(__doc__, missing, two_hosts, run, CASES, SHORT).main())
