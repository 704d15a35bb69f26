"""Use one machine as root and as two users without root.

`second_user.py [--short]` needs root, unshare and setpriv (tests/support/other_users.py). Without
--short the users are real accounts (useradd), which are removed afterwards. The machine is a
simulated one in a folder, the engine a stand-in with real processes, ports and locks. Prints one
JSON object; the exit status is 0 when everything was as stated and nothing remains.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.acceptance import Suite, Unexpected, check_shown
from tests.support.other_users import Ended, OtherUsers, missing
from tests.support.waiting import unused_port


def expect(found: Ended, code: int, *texts: str) -> None:
    """Compare the end of a command. Raises Unexpected."""
    check_shown(found.shown, found.code, code, texts)


def services_of_root(users: OtherUsers) -> None:
    """Keep ports, cards and names of root's service, and name its owner."""
    port, other = unused_port(), unused_port()
    expect(users.detach("root", "big", port), 0, "Ready after")
    expect(users.call("one", "ps"), 0, "No service is running")
    seen = ("another launch: pid ", ", root", "Process on 0-1: gaudi-launch")
    expect(users.call("one", "devices"), 0, *seen)
    for verb in ("stop", "status", "restart", "logs"):
        expect(users.call("one", verb, "big"), 2, "a service of the user root (pid")
    expect(users.detach("one", "mine", port), 3, "'big' (pid", "stop that service as root")
    taken = users.call(
        *("one", "serve", "-w", str(users.model), "-m", "0,1", "-p", str(other), "--name", "mine"),
        *("--no-doctor", "--python", str(users.python), "--detach"),
    )
    expect(taken, 3, "Module 0,1 is in use", ", root)")
    expect(users.detach("one", "mine", other), 0, "Ready after")
    expect(users.call("one", "ps"), 0, "mine", "2,3", str(other))
    expect(users.call("root", "stop", "mine"), 2, f"the user {users.names['one']} (pid")
    expect(users.call("two", "stop", "mine"), 2, f"the user {users.names['one']} (pid")
    # each ends its own only
    expect(users.call("one", "stop", "--all"), 0, "mine: stopped")
    expect(users.call("root", "ps"), 0, "big", "ready")
    expect(users.call("root", "stop", "big"), 0, "big: stopped")


def shared_cache(users: OtherUsers) -> None:
    """Share a cache in a group: one fills it, the other uses and prunes it."""
    root = users.folder / "recipes"
    root.mkdir()
    os.chown(root, 0, users.group_id())
    root.chmod(0o2775)
    turns = [("one", 0o077, "miss"), ("two", 0o022, "hit")]
    if users.real:
        turns.append(("root", 0o077, "hit"))
    for who, umask, state in turns:
        planned = users.call(
            who, *("plan", "-w", str(users.model), "-n", "2", "--python", str(users.python)),
            *("-c", str(root), "--json"),
        )  # fmt: skip
        # the cards of this machine are root's: a user's plan is shown and refused
        expect(planned, 0 if who == "root" else 3)
        found = json.loads(planned.output)["cache"]["state"]
        if found != state:
            raise Unexpected(f"{who}: the cache is a {found}, expected {state}")
        ended = users.detach(who, "cached", unused_port(), "-c", str(root), umask=umask)
        expect(ended, 0, "Ready after")
        if "cannot be used" in _log_of(users, who):
            raise Unexpected(f"{who}: {_log_of(users, who)[-600:]}")
        expect(users.call(who, "stop", "cached"), 0)
    _check_modes(root, users.group_id())
    expect(users.call("two", "cache", "verify", "-c", str(root)), 0, "ok")
    expect(users.call("two", "cache", "prune", "--max-size", "0", "--yes", "-c", str(root)), 0)
    if [path for path in root.iterdir() if path.is_dir()]:
        raise Unexpected(f"not pruned: {sorted(root.iterdir())}")


def _log_of(users: OtherUsers, who: str) -> str:
    """Return the launcher's log of the service."""
    folder = users.home(who) / ".local/state/gaudi-launch/services/cached"
    return "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))


def _check_modes(root: Path, group: int) -> None:
    for path in root.rglob("*"):
        found = path.lstat()
        wanted = stat.S_IRGRP | stat.S_IWGRP
        if path.is_dir():
            wanted |= stat.S_IXGRP | stat.S_ISGID
        if found.st_gid != group or found.st_mode & wanted != wanted:
            raise Unexpected(f"{path.name}: {stat.filemode(found.st_mode)} {found.st_gid}")


def private_caches(users: OtherUsers) -> None:
    """Name a cache in a folder like /tmp and one of another user; start without it."""
    for name, mode in (("sticky", 0o1777), ("private", 0o755)):
        root = users.folder / name
        root.mkdir()
        root.chmod(mode)
        owner = "one" if name == "sticky" else "root"
        for who in (owner, "two"):
            ended = users.detach(who, "cached", unused_port(), "-c", str(root))
            expect(ended, 0, "Ready after")
            unusable = "The recipe cache cannot be used" in _log_of(users, who)
            if unusable != (who == "two"):
                raise Unexpected(f"{name}, {who}: {_log_of(users, who)[-800:]}")
            expect(users.call(who, "stop", "cached"), 0)


def devices_without_access(users: OtherUsers) -> None:
    """Lack access to the cards: the doctor names it and changes nothing."""
    nodes = sorted((users.machine / "dev/accel").iterdir())
    for node in nodes:
        node.chmod(0o660)
    words = ("serve", "-w", str(users.model), "-n", "2", "-p", str(unused_port()), "--name", "x")
    more = ("--python", str(users.python), "--detach")
    expect(
        users.call("one", *words, *more), 3, "This user cannot open", "doctor --only cards.nodes"
    )
    expect(users.call("one", "doctor", "--only", "cards.nodes"), 3, "Join the group")
    expect(users.call("one", "devices"), 0, "8 cards, 8 free: 0-7.")
    for node in nodes:
        node.chmod(0o666)


def remedies_of_root(users: OtherUsers) -> None:
    """Print remedies that need root for sudo, and write nothing."""
    pages = users.machine / "proc/sys/vm/nr_hugepages"
    governors = sorted(users.machine.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"))
    for path in governors:
        path.write_text("powersave\n")
    before = {path: path.read_text() for path in (*governors, pages) if path.exists()}
    expect(users.call("one", "doctor", "--fix", "--yes"), 1, "Nothing was changed", "sudo")
    if {path: path.read_text() for path in before} != before:
        raise Unexpected("a setting was changed")
    for path in governors:
        path.write_text("performance\n")


def left_by_sudo(users: OtherUsers) -> None:
    """Use the own services after root ran one with the user's HOME."""
    home = str(users.home("one"))
    words = ("serve", "-w", str(users.model), "-n", "2", "-p", str(unused_port()))
    more = ("--no-doctor", "--python", str(users.python), "--detach", "--name", "rooted")
    expect(users.call("one", "ps"), 0)
    expect(users.detach("one", "mine", unused_port()), 0, "Ready after")
    expect(users.call("root", *words, *more, HOME=home), 0, "Ready after")
    expect(users.call("one", "ps"), 0, "mine")
    expect(users.call("one", "top", "--once"), 0, "mine")
    expect(users.call("one", "status", "rooted"), 1, "belongs to the user root", "sudo rm -r")
    expect(users.call("one", "stop", "--all"), 0, "mine: stopped")
    expect(users.call("root", "stop", "rooted", HOME=home), 0, "rooted: stopped")


SHORT: tuple[Callable[[OtherUsers], None], ...] = (services_of_root, shared_cache)
CASES: tuple[Callable[[OtherUsers], None], ...] = (
    *SHORT,
    left_by_sudo,
    private_caches,
    devices_without_access,
    remedies_of_root,
)


def run(users: OtherUsers, case: Callable[[OtherUsers], None]) -> None:
    """Run one case; what it left running is ended."""
    try:
        case(users)
        left = users.processes()
        if left:
            raise Unexpected(f"left: {left}")
    except Unexpected:
        users.end_all()
        raise


@contextlib.contextmanager
def users_of_one_machine(short: bool, left: list[str]) -> Iterator[OtherUsers]:
    """Yield the users, who are real accounts unless ``short``.

    ``left`` gets what remains of them.
    """
    folder = Path(tempfile.mkdtemp(prefix="gl-users-"))
    users = OtherUsers(folder, real=not short)
    try:
        users.make()
        yield users
    finally:
        users.clear()
        shutil.rmtree(folder)
    left += users.left()


if __name__ == "__main__":
    sys.exit(Suite(__doc__, missing, users_of_one_machine, run, CASES, SHORT).main())
