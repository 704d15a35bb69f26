"""A launcher above a process, and files as another process sees them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.core.services.process import lineage
from gaudi_launch.core.services.process.lineage import seen_by


def test_a_process_that_is_gone_is_no_launcher_and_has_no_parent() -> None:
    gone = 2**22 + 1
    assert lineage._is_launcher(gone) is False
    assert lineage._parent(gone) is None
    assert lineage._parent(os.getpid()) == os.getppid()


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
