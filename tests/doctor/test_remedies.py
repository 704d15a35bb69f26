"""Fixing and undoing in a machine folder: exactly the files named, bit for bit, whatever happens
in between."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.doctor import remedies
from gaudi_launch.errors import LaunchError
from gaudi_launch.host import simulated
from tests.support.places import TOP
from tests.support.remedies import add_update_grub, plan
from tests.support.waiting import GENEROUS

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


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.remedies import add_update_grub, plan
from gaudi_launch.doctor import remedies
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


def test_an_undo_that_is_killed_goes_on_where_it_stopped(root: Path) -> None:
    before = tree(root)
    remedies.apply(root, plan(root))
    killed(root, 20, "undo")
    assert tree(root) != before
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


def test_without_a_place_for_the_journal_nothing_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = root.parent / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    before = tree(root)
    with pytest.raises(LaunchError) as error:
        remedies.apply(root, plan(root))
    assert error.value.id == "doctor.journal"
    assert tree(root) == before
