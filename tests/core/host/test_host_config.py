"""HostConfig from files: what is read, what is left out, what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.host_config import (
    Disk,
    HostConfig,
    LiveAnswers,
    load_config,
    read_config,
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


def test_the_config_of_a_snapshot_is_read_back(tmp_path: Path) -> None:
    config = read_config(Imagined(FILES))
    host = {"kind": "gaudi-launch snapshot", "schema": 1, "host": {}}
    file = tmp_path / "s.json"
    file.write_text(json.dumps({**host, "config": to_json(config)}))
    assert load_config(str(file)) == config
    file.write_text(json.dumps(host))
    assert load_config(str(file)) == HostConfig()


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
