"""Single settings of a machine, each from the files that show it."""

from __future__ import annotations

import pytest

from gaudi_launch.core.host import config_files as settings
from gaudi_launch.core.host.files import Imagined


@pytest.mark.parametrize(
    ("mounts", "mib"),
    [
        ("tmpfs /dev/shm tmpfs size=3145728 0 0\n", 3),
        ("tmpfs /dev/shm tmpfs rw,size=4096k,mode=1 0 0\n", 4),
        ("tmpfs /dev/shm tmpfs rw,size=5m 0 0\n", 5),
        ("ramfs /dev/shm ramfs size=6g 0 0\n", 6144),
        ("tmpfs /dev/shm tmpfs size=25% 0 0\n", 256),
        # the kernel's default is half of the memory
        ("tmpfs /dev/shm tmpfs rw,maxsize=5m 0 0\n", 512),
        ("ext4 /dev/shm ext4 size=5m 0 0\n", None),
        ("tmpfs /tmp tmpfs size=5m 0 0\ntmpfs /dev/shm\ntmpfs /dev/shm tmpfs size=7m\n", 7),
        ("", None),
    ],
)
def test_the_size_of_shared_memory_is_in_mib(mounts: str, mib: int | None) -> None:
    memory = {"proc/meminfo": "MemTotal: 1048576 kB\n"}
    assert settings.shm_mib(Imagined({"proc/mounts": mounts, **memory})) == mib
    assert settings.shm_mib(Imagined({"proc/self/mounts": mounts, **memory})) == mib


@pytest.mark.parametrize("options", ["rw", "size=50%"])
def test_a_share_of_unknown_memory_is_unknown(options: str) -> None:
    mounts = f"tmpfs /dev/shm tmpfs {options} 0 0\n"
    assert settings.shm_mib(Imagined({"proc/mounts": mounts})) is None


def test_the_runtimes_of_docker_or_why_they_cannot_be_read() -> None:
    class Locked(Imagined):
        def text(self, path: str) -> None:
            return None

    name = "etc/docker/daemon.json"
    assert settings.docker_runtimes(Imagined({})) == ({}, None)
    assert settings.docker_runtimes(Imagined({name: ""})) == ({}, None)
    assert settings.docker_runtimes(Imagined({name: '{"debug": true}'})) == ({}, None)
    assert settings.docker_runtimes(Locked({name: "{}"})) == (None, "unreadable")
    good = '{"runtimes": {"habana": {"path": "/usr/bin/h"}, "other": {}}}'
    assert settings.docker_runtimes(Imagined({name: good})) == (
        {"habana": "/usr/bin/h", "other": ""},
        None,
    )
    runtimes, problem = settings.docker_runtimes(Imagined({name: "{"}))
    assert runtimes is None
    assert problem is not None and problem.startswith("Expecting property name")


def test_a_path_is_on_the_last_of_the_longest_mounts() -> None:
    mounts = (
        "/dev/a / ext4 rw\n/dev/b /data xfs rw\nc /data nfs4 rw\nshort /data\n"
        "d /data/my\\040models lustre rw\ne /dat tmpfs rw\n"
    )
    paths = ("/", "/data", "/data/x", "/database", "/data/my models/m", "/etc")
    kinds = " ".join(str(settings.mount_kind(mounts, path)) for path in paths)
    assert kinds == "ext4 nfs4 nfs4 ext4 lustre ext4"
    assert settings.mount_kind("", "/") is None
