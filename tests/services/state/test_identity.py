"""A process is known by its start and its boot."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gaudi_launch.services.state import identity
from gaudi_launch.services.state.identity import Identity, boot_id, of, start_ticks


def stat(state: str, threads: int = 1, ticks: int = 99, name: str = "a) R (b") -> bytes:
    """Return a line of /proc/PID/stat (proc(5)): 17 is the number of threads, 19 the start."""
    fields = [state, *["0"] * 16, str(threads), "0", str(ticks), "0"]
    return f"7 ({name}) {' '.join(fields)}\n".encode()


@pytest.mark.parametrize(
    ("content", "ticks"),
    [
        (stat("S"), 99),
        (stat("R", ticks=0), 0),
        # the first thread alone has ended
        (stat("Z", threads=2), 99),
        (stat("Z"), None),
        (stat("X", threads=2), None),
        (stat("x", threads=2), None),
        (b"7 (a) S 1 2 3\n", None),
        (b"7 (a) Z 1 2 3\n", None),
        (b"", None),
    ],
)
def test_a_process_that_is_dead_has_no_start(
    monkeypatch: pytest.MonkeyPatch, content: bytes, ticks: int | None
) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: content)
    assert start_ticks(7) == ticks


def test_the_boot_has_a_name_where_the_kernel_gives_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    assert boot_id() == ""
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_bytes(b" abc\xff \n")
    assert boot_id() == "abc\ufffd"


def test_this_process_is_alive_and_one_of_another_boot_or_start_is_not() -> None:
    mine = of(os.getpid())
    assert mine is not None and mine.alive
    assert mine == Identity(os.getpid(), start_ticks(os.getpid()) or 0, boot_id())
    for other in (
        Identity(mine.pid, mine.ticks + 1, mine.boot),
        Identity(mine.pid, mine.ticks, "another"),
        Identity(2**22 + 1, mine.ticks, mine.boot),
    ):
        assert not other.alive
        # and gets no signal, which would end this process
        assert other.send(signal.SIGKILL) is False
    assert mine.send(0) is True
    assert of(2**22 + 1) is None


def test_a_process_that_ends_before_the_signal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = of(os.getpid())
    assert mine is not None
    sent: list[int] = []

    def gone(handle: int, number: int) -> None:
        sent.append(number)
        raise ProcessLookupError

    monkeypatch.setattr(signal, "pidfd_send_signal", gone)
    before = len([*Path("/proc/self/fd").iterdir()])
    assert (mine.send(0), sent) == (False, [0])
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"pid": 1, "ticks": 2}, {"pid": "1", "ticks": 2, "boot": ""},
     {"pid": 1, "ticks": None, "boot": ""}, {"pid": 1, "ticks": 2, "boot": 3}],
)  # fmt: skip
def test_only_complete_records_are_identities(document: object) -> None:
    assert Identity.from_json(document) is None
    whole = Identity(1, 2, "b")
    assert identity.Identity.from_json(whole.to_json()) == whole
