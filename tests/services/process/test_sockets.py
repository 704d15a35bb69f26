"""Sockets that an engine left are removed; whatever somebody may still use stays."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from gaudi_launch.services.process import sockets


@pytest.fixture
def folder() -> Iterator[Path]:
    # a path of pytest's own may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="gl-") as made:
        yield Path(made)


def bind(path: Path, held: ExitStack | None = None, *, listen: bool = True) -> Path:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    if listen:
        made.listen()
    if held is None:
        made.close()
    else:
        held.enter_context(made)
    return path


def test_only_what_is_dead_and_new_is_removed(folder: Path) -> None:
    now = time.time()
    with ExitStack() as held:
        kept = [
            bind(folder / str(uuid4()), held),
            # bound, and about to listen
            bind(folder / str(uuid4()), held, listen=False),
            bind(folder / "another-programs"),
            bind(folder / f"{uuid4()}_other"),
            folder / str(uuid4()),
            folder / str(uuid4()),
        ]
        kept[-2].write_text("no socket")
        kept[-1].symlink_to(kept[2])
        old = bind(folder / str(uuid4()))
        os.utime(old, (now - 100, now - 100))
        dead = [bind(folder / f"{uuid4()}{word}") for word in ("", "_input_socket", "_data_socket")]
        assert not sockets.remove_dead(now - 10, {"VLLM_RPC_BASE_PATH": str(folder)})
        assert sorted(folder.iterdir()) == sorted([*kept, old])
        assert not any(path.exists() for path in dead)


def test_one_of_another_network_namespace_is_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_held", set)
    with ExitStack() as held:
        living = bind(folder / str(uuid4()), held)
        sockets.remove_dead(0.0, {"VLLM_RPC_BASE_PATH": str(folder)})
        assert living.exists()
    assert sockets.remove_dead(0.0, {"VLLM_RPC_BASE_PATH": str(folder)})
    assert not living.exists()


def test_a_folder_that_is_not_there(folder: Path) -> None:
    assert sockets.remove_dead(0.0, {"VLLM_RPC_BASE_PATH": str(folder / "none")})
