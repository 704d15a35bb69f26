"""Sockets that an engine left are removed; whatever somebody may still use stays."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from gaudi_launch.core.services.process import sockets


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
