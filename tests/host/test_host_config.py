"""HostConfig from files: what is read, what is left out, what cannot be told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gaudi_launch import paths
from gaudi_launch.errors import LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.host.files import Imagined
from gaudi_launch.host.host_config import (
    Disk,
    HostConfig,
    LiveAnswers,
    cpus_without,
    load_config,
    read_config,
    read_live,
    to_json,
)


def read(**files: str) -> HostConfig:
    return read_config(Imagined({name.replace("__", "/"): text for name, text in files.items()}))


FILES = {
    "proc/meminfo": (
        "MemTotal: 1024000 kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n"
        "HugePages_Total: 5\nHugePages_Free: 3\nHugepagesize: 2048 kB\n"
    ),
    "etc/os-release": 'ID="openEuler"\nID_LIKE="rhel Fedora"\nVERSION_ID="22.03 LTS"\n',
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/name": "POLL\n",
    "sys/devices/system/cpu/intel_pstate/status": "active\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    "sys/devices/system/cpu/cpuidle/current_driver": "intel_idle\n",
    "sys/module/intel_idle/parameters/max_cstate": "9\n",
    "proc/cmdline": "ro quiet\n",
    "etc/default/grub": "GRUB_CMDLINE_LINUX=quiet\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/sys/vm/nr_hugepages": "6\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/self/limits": "Max locked memory unlimited u bytes\nMax open files 1024 4096 files\n",
    "proc/mounts": "/dev/a / ext4 rw 0 0\ntmpfs /dev/shm tmpfs size=64m 0 0\n",
    "proc/modules": "habanalabs 1 0\n",
    "proc/sys/kernel/osrelease": "6.8.0\n",
    "lib/modules/6.8.0/extra/habanalabs.ko": "",
    "var/lib/dpkg/status": "Package: habanatools\nStatus: ok installed\nVersion: 1.22\n",
    "sys/bus/pci/devices/0000:19:00.0/vendor": "0x1da3\n",
    "dev/accel/accel0": "",
    "dev/accel/accel1": "",
    "usr/bin/docker": "",
    "etc/docker/daemon.json": '{"runtimes": {"h": {"path": "/usr/bin/h"}, "g": {"path": "/g"}}}',
    "usr/bin/h": "",
    "mine/fabric/lib/libfabric.so.1": "",
    "usr/lib/libhccl_ofi_wrapper.so": "",
    "proc/net/tcp": "head\n 0: 00000000:0016 00000000:0000 0A 0\n",
}


def test_every_setting_is_read_from_its_file() -> None:
    answers = LiveAnswers(
        environment={"LIBFABRIC_ROOT": "/mine/fabric/", "HOME": "/root", "HTTPS_PROXY": "p:1"},
        space=lambda path: (7, path.startswith("/")),
        allowed=lambda path: path.endswith("1"),
        find={"numactl": "/opt/numactl"}.get,
        root="/machine",
        root_user=False,
    )
    disks = {"cache": paths.cache_dir(), "data": paths.data_dir()}
    assert read_config(Imagined(FILES), answers) == HostConfig(
        governors={"performance": "0"},
        scaling_drivers={"intel_pstate": "0"},
        pstate_status="active",
        no_turbo=1,
        idle_driver="intel_idle",
        idle_states={"POLL": "0"},
        max_cstate=9,
        command_line=("ro", "quiet"),
        grub=("quiet",),
        os_id="openeuler",
        os_like=("rhel", "fedora"),
        os_version="22.03 LTS",
        numa_balancing=0,
        swap_total_mib=4,
        swap_used_mib=3,
        hugepages_total=6,
        hugepages_free=3,
        hugepage_kib=2048,
        transparent_hugepages="madvise",
        memlock="unlimited",
        nofile="1024",
        shm_mib=64,
        modules=("habanalabs",),
        module_built=True,
        packages={"habanatools": "1.22"},
        pci_devices=("0000:19:00.0",),
        device_nodes={"/dev/accel/accel0": False, "/dev/accel/accel1": True},
        programs={"docker": "/usr/bin/docker", "numactl": "/opt/numactl"},
        docker_runtimes={"h": "/usr/bin/h", "g": "/g"},
        docker_problem=None,
        runtime_programs=("/usr/bin/h",),
        libfabric="/mine/fabric/lib/libfabric.so.1",
        ofi_wrapper="/usr/lib/libhccl_ofi_wrapper.so",
        environment={"LIBFABRIC_ROOT": "/mine/fabric/", "https_proxy": "p:1"},
        ports=(22,),
        disks={use: Disk(str(path), 7, "ext4", False) for use, path in disks.items()},
        root_user=False,
        root="/machine",
    )


def test_a_machine_without_the_setting_of_huge_pages_has_those_of_its_memory() -> None:
    config = read(proc__meminfo="HugePages_Total: 5\nSwapTotal: 2048 kB\n")
    assert (config.hugepages_total, config.swap_total_mib, config.swap_used_mib) == (5, 2, 0)


def test_the_mounts_of_this_process_count_where_there_are_no_others() -> None:
    config = read(proc__self__mounts="/dev/a / xfs rw 0 0\n")
    assert [disk.kind for disk in config.disks.values()] == ["xfs", "xfs"]
    assert [disk.free_mib for disk in config.disks.values()] == [None, None]


def test_the_disk_of_a_folder_that_does_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("x / zfs rw\n")
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/b")
    disk = read_live(tmp_path).disks["cache"]
    state = os.statvfs(tmp_path)
    assert (disk.path, disk.kind, disk.writable) == ("/a/b/gaudi-launch", "zfs", True)
    # another program may write between the two readings
    assert disk.free_mib is not None
    assert abs(disk.free_mib - (state.f_bavail * state.f_frsize >> 20)) < 1024


def test_a_simulated_machine_has_two_tib_of_disk() -> None:
    disks = load_config("simulated:gaudi2e-4").disks
    assert {(disk.free_mib, disk.writable) for disk in disks.values()} == {(2 << 20, True)}


def test_the_config_of_a_snapshot_is_read_back(tmp_path: Path) -> None:
    config = read_config(Imagined(FILES))
    host = {"kind": "gaudi-launch snapshot", "schema": 1, "host": {}}
    file = tmp_path / "s.json"
    file.write_text(json.dumps({**host, "config": to_json(config)}))
    assert load_config(str(file)) == config
    file.write_text(json.dumps(host))
    assert load_config(str(file)) == HostConfig()


def test_only_this_machine_has_programs_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,1")
    there = read_live(tmp_path / "root")
    assert (there.programs, there.root) == ({}, str(tmp_path / "root"))
    assert there.environment["HABANA_VISIBLE_MODULES"] == "0,1"
    assert there.root_user is (os.geteuid() == 0)
    assert read_live(Path("/")).programs["docker"] == str(tmp_path / "docker")


def test_nothing_is_unknown_and_not_no() -> None:
    config = read_config(Imagined({}))
    assert (config.numa_balancing, config.modules, config.pci_devices, config.ports) == (
        None,
        None,
        None,
        None,
    )
    assert (config.governors, config.docker_runtimes) == ({}, {})


def test_the_id_of_a_distribution_is_read_in_lower_case() -> None:
    """openEuler 22.03 and 24.03 write ID="openEuler" (canonical/cloud-init: tests/unittests)."""
    config = read(**{"etc__os-release": 'ID="openEuler"\nVERSION_ID="22.03"\n'})
    assert (config.os_id, config.os_version, config.os_like) == ("openeuler", "22.03", ())


def test_a_folder_and_its_memory_image_are_the_same(tmp_path: Path) -> None:
    simulated.write_tree("gaudi2e-4+bad-tuning", tmp_path)
    folder, memory = read_live(tmp_path), load_config("simulated:gaudi2e-4+bad-tuning")
    for name in (
        "governors",
        "idle_states",
        "command_line",
        "grub",
        "hugepages_total",
        "modules",
        "pci_devices",
    ):
        assert getattr(folder, name) == getattr(memory, name), name
    assert set(folder.device_nodes) == set(memory.device_nodes)


def test_governors_that_differ_are_compressed() -> None:
    place = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    words = {
        place.format(cpu): "powersave" if cpu in (4, 5, 7) else "performance" for cpu in range(10)
    }
    config = read_config(Imagined(words))
    assert config.governors == {"performance": "0-3,6,8-9", "powersave": "4-5,7"}
    assert cpus_without(config.governors, "performance") == (4, 5, 7)


def test_a_proxys_password_is_not_kept() -> None:
    environment = {
        "HTTP_PROXY": "http://ann:hunter2@proxy:3128",
        "HF_TOKEN": "hf_x",
        "no_proxy": "a",
    }
    config = read_config(Imagined({}), LiveAnswers(environment=environment))
    assert config.environment == {"http_proxy": "http://proxy:3128", "no_proxy": "a"}


def test_docker_settings_good_and_bad() -> None:
    good = '{"runtimes": {"habana": {"path": "/usr/bin/habana-container-runtime"}}}'
    assert read(etc__docker__daemon_json=good).docker_runtimes == {}
    files = {"etc/docker/daemon.json": good}
    assert read_config(Imagined(files)).docker_runtimes == {
        "habana": "/usr/bin/habana-container-runtime"
    }
    for bad in ("{", "[1]", '{"runtimes": [1]}', '{"runtimes": {"habana": 1}}'):
        config = read_config(Imagined({"etc/docker/daemon.json": bad}))
        assert config.docker_runtimes is None and config.docker_problem


def test_a_snapshot_with_a_strange_config_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text(
        '{"schema": 1, "kind": "gaudi-launch snapshot", "host": {}, "config": {"no_turbo": "yes"}}'
    )
    with pytest.raises(LaunchError) as error:
        load_config(str(file))
    assert error.value.text.values["where"] == "config.no_turbo"
