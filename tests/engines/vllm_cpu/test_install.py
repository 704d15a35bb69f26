"""The embedded engine's installation: what this machine must have first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gaudi_launch.app.prepare import _demo
from gaudi_launch.app.report import Silent
from gaudi_launch.engines.vllm_cpu import install
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.request import Request


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let /dev/shm have this many bytes free."""
    usage = shutil._ntuple_diskusage(free, 0, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_a_small_shared_memory_stops_serve_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_free(monkeypatch, 62 << 20)
    monkeypatch.setattr(install, "setup", lambda say: pytest.fail("installed"))
    with pytest.raises(LaunchError) as caught:
        _demo(Request(model="demo"), Silent(), in_image=False)
    assert (caught.value.id, caught.value.exit_code) == ("serve.shared_memory", ExitCode.MACHINE)
    assert "62 MiB" in str(caught.value)
    # an image is run with a shared memory of its own
    monkeypatch.setattr(install, "demo_is_ready", lambda: True)
    _demo(Request(model="demo"), Silent(), in_image=True)


def test_the_queues_of_the_engine_need_240_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 241 << 20)
    install.check_shared_memory()
    with_free(monkeypatch, 240 << 20)
    with pytest.raises(LaunchError):
        install.check_shared_memory()


def test_a_machine_without_dev_shm_is_left_to_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "_SHARED_MEMORY", tmp_path / "none")
    install.check_shared_memory()


def test_a_full_disk_is_named_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path))
    monkeypatch.setattr(install, "check_library", lambda: None)
    monkeypatch.setattr(install, "run_steps", lambda *words: pytest.fail("installed"))
    with_free(monkeypatch, (4 << 30) - 4096)
    with pytest.raises(LaunchError) as caught:
        install.setup(lambda line: None, demo=False)
    assert (caught.value.id, caught.value.exit_code) == ("serve.setup_room", ExitCode.MACHINE)
    # what an interrupted installation left is removed by the next one
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "left").write_bytes(b"x" * 4096)
    install._check_room(tmp_path / "cpu")
