"""A launcher above a process, and files as another process sees them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gaudi_launch.services.process import lineage
from gaudi_launch.services.process.lineage import Above, above, seen_by
from gaudi_launch.services.state import identity


@contextmanager
def sleeping(*words: str) -> Iterator[int]:
    """Run a process with this command line."""
    # sleep accepts a number only, tail any file; -f lets it stay
    with subprocess.Popen(
        words, executable="/usr/bin/tail", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            # its arguments are visible a moment after it began
            while not Path(f"/proc/{child.pid}/cmdline").read_bytes():
                time.sleep(0.001)
            yield child.pid
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("words", "is_launcher"),
    [
        (("gaudi-launch", "-f"), True),
        (("/opt/bin/gaudi-launch", "-f"), True),
        (("tail", "/dev/null/gaudi-launch", "-f", "-"), True),
        (("tail", "-f", "/dev/null/gaudi-launch", "-"), False),
        (("gaudi_launch", "-f"), False),
        (("tail", "-f"), False),
    ],
)
def test_a_launcher_is_known_by_its_program(words: tuple[str, ...], is_launcher: bool) -> None:
    with sleeping(*words) as pid:
        assert lineage._is_launcher(pid) is is_launcher


@pytest.mark.parametrize(
    ("line", "is_launcher"),
    [
        (b"python\0-m\0gaudi_launch.services.process.detach\0chat\0", True),
        (b"python\0-m\0gaudi_launch\0", True),
        (b"python\0-m\0gaudi_launcher\0", False),
        (b"python\0-c\0gaudi_launch\0", False),
        (b"python\0gaudi_launch\0-m\0", False),
    ],
)
def test_a_launcher_is_known_by_its_module(
    monkeypatch: pytest.MonkeyPatch, line: bytes, is_launcher: bool
) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: line)
    monkeypatch.setattr(identity, "start_ticks", lambda pid: 1)
    assert lineage._is_launcher(7) is is_launcher
    # one that has ended counts no more
    monkeypatch.setattr(identity, "start_ticks", lambda pid: None)
    assert lineage._is_launcher(7) is False


def test_a_process_that_is_gone_is_no_launcher_and_has_no_parent() -> None:
    gone = 2**22 + 1
    assert lineage._is_launcher(gone) is False
    assert lineage._parent(gone) is None
    assert lineage._parent(os.getpid()) == os.getppid()


@pytest.mark.parametrize(
    ("parents", "launchers", "found"),
    [
        ({9: 5, 5: 1, 1: 0}, {5}, Above.LAUNCHER),
        ({9: 5, 5: 1, 1: 0}, {1}, Above.LAUNCHER),
        # the process itself does not count
        ({9: 5, 5: 1, 1: 0}, {9}, Above.NO_LAUNCHER),
        # the parent is outside of the namespace
        ({9: 5, 5: 0}, set(), Above.HIDDEN),
        ({9: 5}, set(), Above.HIDDEN),
        ({}, set(), Above.HIDDEN),
        # a chain that changed while it was read
        ({9: 5, 5: 9}, set(), Above.HIDDEN),
    ],
)
def test_the_ancestors_of_a_process_are_searched(
    monkeypatch: pytest.MonkeyPatch, parents: dict[int, int], launchers: set[int], found: Above
) -> None:
    monkeypatch.setattr(lineage, "_parent", parents.get)
    monkeypatch.setattr(lineage, "_is_launcher", lambda pid: pid in launchers)
    assert above(9) is found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let process 7 see other files: those below a folder."""
    below = tmp_path / "root"
    (below / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(lineage, "shares_our_files", lambda pid: False)
    monkeypatch.setattr(
        lineage, "Path", lambda text: below if text == "/proc/7/root" else Path(text)
    )
    return below


def test_a_path_is_followed_as_the_process_would(root: Path) -> None:
    assert seen_by(7, Path("/a/b/c")) == root / "a/b/c"
    assert seen_by(7, Path("/a/../../x")) == root / "x"
    (root / "absolute").symlink_to("/a/b")
    (root / "a" / "relative").symlink_to("../a/b")
    assert seen_by(7, Path("/absolute/c")) == root / "a/b/c"
    assert seen_by(7, Path("/a/relative/c")) == root / "a/b/c"


def test_as_many_links_are_followed_as_the_kernel_follows(root: Path) -> None:
    (root / "link0").symlink_to("/a")
    for number in range(1, 41):
        (root / f"link{number}").symlink_to(f"link{number - 1}")
    assert seen_by(7, Path("/link39/b")) == root / "a/b"
    with pytest.raises(OSError) as caught:
        seen_by(7, Path("/link40"))
    assert (caught.value.errno, caught.value.filename) == (40, "/link40")


def test_the_same_files_have_the_same_path() -> None:
    assert lineage.shares_our_files(os.getpid())
    assert seen_by(os.getpid(), Path("/a/../b")) == Path("/a/../b")
    with pytest.raises(OSError, match="No such file"):
        seen_by(2**22 + 1, Path("/a"))
