"""Containers of docker and podman: the limits that they can have, and their programs."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gaudi_launch.services import containers
from gaudi_launch.services.containers import program_of, settable_limits


def test_podman_gets_no_more_than_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        resource.RLIMIT_NPROC: (500, 1000),
        resource.RLIMIT_MEMLOCK: (64, 8192),
        resource.RLIMIT_NOFILE: (1024, 100_000),
    }
    monkeypatch.setattr(containers, "_may_raise_limits", lambda: False)
    monkeypatch.setattr(resource, "getrlimit", own.__getitem__)
    assert settable_limits("podman") == {
        "nproc": (500, 1000),
        "memlock": (8192, 8192),
        "nofile": (65535, 65535),
    }
    # its daemon sets them
    assert settable_limits("docker") is None


def test_an_unlimited_process_gives_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(containers, "_may_raise_limits", lambda: False)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: unlimited)
    limits = settable_limits("podman")
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert limits == {"nproc": (most, most), "memlock": (-1, -1), "nofile": (65535, 65535)}


def test_a_process_that_may_raise_limits_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_may_raise_limits", lambda: True)
    assert settable_limits("podman") is None


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (("podman", "--runtime=x", "run"), "podman"),
        (("/usr/bin/podman", "run"), "podman"),
        (("docker", "run"), "docker"),
        ((), "docker"),
    ],
)
def test_the_program_of_a_command(argv: tuple[str, ...], program: str) -> None:
    assert program_of(argv) == program
