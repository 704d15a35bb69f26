"""Fixing and undoing in a machine folder: exactly the files named, bit for bit, whatever happens
in between."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.commands.doctor import remedies
from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.core.doctor.journal import journal_path
from gaudi_launch.core.doctor.runner import quick
from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.host_config import read_live
from gaudi_launch.core.host.read import read_host
from tests.support.places import TOP
from tests.support.refusals import raising
from tests.support.remedies import add_update_grub, plan
from tests.support.waiting import GENEROUS

DROP_INS = {
    "etc/tmpfiles.d/gaudi-launch-governor.conf",
    "etc/sysctl.d/90-gaudi-launch-numa-balancing.conf",
    "etc/sysctl.d/90-gaudi-launch-hugepages.conf",
    "etc/security/limits.d/90-gaudi-launch.conf",
    "etc/default/grub.d/90-gaudi-launch.cfg",
}
MENU = "boot/grub/grub.cfg"
RUNNING = {"proc/sys/kernel/numa_balancing", "proc/sys/vm/nr_hugepages"}
Tree = dict[str, tuple[int, bytes | None]]


@pytest.fixture
def root(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "machine"
    simulated.write_tree("gaudi2e-4+bad-tuning", root)
    # two of the CPUs are right already and must not be written
    for cpu in (0, 5):
        (root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor").write_text(
            "performance\n"
        )
    (root / "proc/sys/vm/nr_hugepages").chmod(0o640)
    add_update_grub(root)
    yield root


def tree(root: Path) -> Tree:
    """Mode and content of everything below a folder."""
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_bytes() if path.is_file() and not path.is_symlink() else None,
        )
        for path in sorted(root.rglob("*"))
    }


def changed(before: Tree, after: Tree) -> set[str]:
    folders = {path for path in after if after[path][1] is None and path not in before}
    return {
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    } - folders


def statuses(outcomes: list[RemedyOutcome]) -> set[str]:
    return {outcome.status for outcome in outcomes}


def test_fix_changes_exactly_the_named_files_and_undo_restores_them(root: Path) -> None:
    before = tree(root)
    changes = plan(root)
    governors = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor" for n in range(128)}
    wanted = DROP_INS | RUNNING | {path for path in governors if before[path][1] == b"powersave\n"}
    assert len(wanted) == 5 + 2 + 126
    assert {change.path for change in changes} == wanted
    assert statuses(remedies.apply(root, changes)) == {"changed"}
    after = tree(root)
    assert changed(before, after) == {*wanted, MENU}
    boot = b"intel_idle.max_cstate=0 cpufreq.default_governor=performance intel_iommu=on iommu=pt"
    assert after[MENU][1] == b"ro quiet splash " + boot + b"\n"
    assert after["proc/sys/vm/nr_hugepages"] == (0o640, b"15000\n")
    assert after["etc/sysctl.d/90-gaudi-launch-numa-balancing.conf"][0] == 0o644
    assert b"kernel.numa_balancing = 0\n" in (
        after["etc/sysctl.d/90-gaudi-launch-numa-balancing.conf"][1] or b""
    )

    findings = {f.id: f.status for f in quick(read_host(root), read_live(root))}
    assert (
        findings["cpu.governor"]
        == findings["kernel.numa_balancing"]
        == findings["memory.hugepages"]
        == "ok"
    )

    assert statuses(remedies.undo(root)) == {"restored"}
    assert tree(root) == before
    assert remedies.undo(root) == []


def test_fixing_twice_writes_nothing_the_second_time(root: Path) -> None:
    before = tree(root)
    remedies.apply(root, plan(root))
    once, journal = tree(root), journal_path().read_bytes()
    again = plan(root)
    assert again == []
    remedies.apply(root, again)
    assert (tree(root), journal_path().read_bytes()) == (once, journal)
    remedies.undo(root)
    assert tree(root) == before


def test_two_fixes_with_a_change_between_go_back_to_the_beginning(root: Path) -> None:
    before = tree(root)
    remedies.apply(root, plan(root))
    (root / "proc/sys/kernel/numa_balancing").write_text("2\n")
    remedies.apply(root, plan(root))
    remedies.undo(root)
    assert tree(root) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.remedies import add_update_grub, plan
from gaudi_launch.commands.doctor import remedies
root, stop = Path(sys.argv[1]), int(sys.argv[2])
seen = 0
def step(word, change=None):
    global seen
    seen += 1
    if seen == stop:
        os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "fix":
    remedies.apply(root, plan(root), step)
else:
    remedies.undo(root, step)
"""


def killed(root: Path, step: int, action: str) -> None:
    """A real process that is killed at this step: odd ones are between journal and write, even
    ones after it."""
    here = TOP
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(step), action], cwd=here, timeout=GENEROUS
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("step", [1, 2, 3, 252, 253, 254, 255, 257, 259, 263])
def test_killed_anywhere_undo_restores_bit_for_bit(root: Path, step: int) -> None:
    before = tree(root)
    killed(root, step, "fix")
    remedies.undo(root)
    assert tree(root) == before


def test_killed_then_fixed_then_undone(root: Path) -> None:
    before = tree(root)
    killed(root, 8, "fix")
    remedies.apply(root, plan(root))
    remedies.undo(root)
    assert tree(root) == before


def test_an_undo_that_is_killed_goes_on_where_it_stopped(root: Path) -> None:
    before = tree(root)
    remedies.apply(root, plan(root))
    killed(root, 20, "undo")
    assert tree(root) != before
    remedies.undo(root)
    assert tree(root) == before


def test_a_torn_journal_line_hides_nothing(root: Path) -> None:
    before = tree(root)
    remedies.apply(root, plan(root)[:3])
    with journal_path().open("ab") as file:
        file.write(b'{"schema": 1, "number": "9", "path": "proc/sys/ker')
    remedies.apply(root, plan(root))
    remedies.undo(root)
    assert tree(root) == before


def test_a_file_left_half_written_by_a_kill_is_cleared_away(root: Path) -> None:
    before = tree(root)
    killed(root, 255, "fix")
    # where the process would have died a moment later: the new file beside its place
    place = root / "etc/tmpfiles.d"
    place.mkdir(exist_ok=True)
    (place / ".gaudi-launch-governor.conf.gaudi-launch").write_text("w /sys")
    remedies.undo(root)
    (place.rmdir() if place.exists() and "etc/tmpfiles.d" not in before else None)
    assert tree(root) == before


def test_a_former_file_of_ours_comes_back_with_its_mode(root: Path) -> None:
    old = root / "etc/sysctl.d/90-gaudi-launch-hugepages.conf"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"vm.nr_hugepages = 7\xff\n")
    old.chmod(0o600)
    before = tree(root)
    remedies.apply(root, plan(root))
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    remedies.undo(root)
    assert tree(root) == before


def test_a_later_edit_of_the_user_is_left_alone(root: Path) -> None:
    remedies.apply(root, plan(root))
    edited = root / "etc/sysctl.d/90-gaudi-launch-hugepages.conf"
    edited.write_text("vm.nr_hugepages = 20000\n")
    outcomes = {outcome.path: outcome.status for outcome in remedies.undo(root)}
    assert outcomes["etc/sysctl.d/90-gaudi-launch-hugepages.conf"] == "kept"
    assert edited.read_text() == "vm.nr_hugepages = 20000\n"
    assert outcomes["proc/sys/vm/nr_hugepages"] == "restored"


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "target").write_text("mine\n")
    (root / "etc/sysctl.d").symlink_to(elsewhere)
    governor = root / "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
    changes = plan(root)
    governor.unlink()
    governor.symlink_to(elsewhere / "target")
    outcomes = {outcome.path: outcome.status for outcome in remedies.apply(root, changes)}
    assert {path for path, status in outcomes.items() if status == "failed"} == {
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "etc/sysctl.d/90-gaudi-launch-numa-balancing.conf",
        "etc/sysctl.d/90-gaudi-launch-hugepages.conf",
    }
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == {"target": "mine\n"}


def test_a_write_that_fails_leaves_the_rest_done_and_undoable(root: Path) -> None:
    changes = plan(root)
    broken = root / "proc/sys/kernel/numa_balancing"
    broken.unlink()
    broken.mkdir()  # refuses every write, also to root
    before = tree(root)
    outcomes = {outcome.path: outcome.status for outcome in remedies.apply(root, changes)}
    assert outcomes.pop("proc/sys/kernel/numa_balancing") == "failed"
    assert set(outcomes.values()) == {"changed"}
    remedies.undo(root)
    assert tree(root) == before


def test_a_boot_menu_that_is_not_written_leaves_no_argument(root: Path) -> None:
    before = tree(root)
    [change] = [change for change in plan(root) if change.fix == "boot"]
    (root / "broken").touch()
    [failed] = remedies.apply(root, [change])
    assert (failed.status, failed.reason) == ("failed", "/usr/sbin/update-grub: no space left")
    (root / "broken").unlink()
    remedies.undo(root)
    assert tree(root) == before


def test_an_argument_that_comes_later_is_added_to_ours(root: Path) -> None:
    arguments = {"iommu=pt", "intel_iommu=on"}
    [change] = [change for change in plan(root) if change.fix == "boot"]
    drop_in = root / change.path
    drop_in.parent.mkdir()
    drop_in.write_text('GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"\n')
    [change] = [change for change in plan(root) if change.fix == "boot"]
    remedies.apply(root, [change])
    assert arguments < set((root / MENU).read_text().split())
    assert [change for change in plan(root) if change.fix == "boot"] == []


def as_nobody(root: Path, changes: list[Change]) -> list[str]:
    """What `refused` says to a user without rights: this process's child, which gives its rights
    up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, "\n".join(remedies.refused(root, changes)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return told.read().splitlines()


@pytest.mark.root
def test_what_may_not_be_written_is_known_before_the_first_write(root: Path) -> None:
    changes = [change for change in plan(root) if change.fix == "hugepages"]
    assert remedies.refused(root, changes) == []
    for folder in root.parents:
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
    (root / "proc/sys/vm/nr_hugepages").chmod(0o644)
    assert as_nobody(root, changes) == [
        "/proc/sys/vm/nr_hugepages",
        "/etc/sysctl.d/90-gaudi-launch-hugepages.conf",
    ]


@pytest.mark.root
def test_a_read_only_mode_survives_the_fix(root: Path) -> None:
    (root / "proc/sys/vm/nr_hugepages").chmod(0o444)
    before = tree(root)
    remedies.apply(root, plan(root))
    assert tree(root)["proc/sys/vm/nr_hugepages"] == (0o444, b"15000\n")
    remedies.undo(root)
    assert tree(root) == before


def test_without_a_place_for_the_journal_nothing_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = root.parent / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    before = tree(root)
    with raising("doctor.journal"):
        remedies.apply(root, plan(root))
    assert tree(root) == before


def test_another_root_is_another_machine(root: Path, tmp_path: Path) -> None:
    remedies.apply(root, plan(root))
    assert remedies.undo(tmp_path / "other") == []
    assert stat.S_IMODE(journal_path().stat().st_mode) == 0o600
