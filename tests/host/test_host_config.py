"""HostConfig from files: what is read, what is left out, what cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.errors import LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.host.files import Imagined
from gaudi_launch.host.host_config import (
    HostConfig,
    LiveAnswers,
    cpus_without,
    load_config,
    read_config,
    read_live,
)


def read(**files: str) -> HostConfig:
    return read_config(Imagined({name.replace("__", "/"): text for name, text in files.items()}))


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


def test_ports_that_listen() -> None:
    line = "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000 0 0 1 1\n"
    tcp = "head\n" + line.format("0100007F:1F90", "0A") + line.format("0100007F:1F91", "01")
    tcp6 = "head\n" + line.format("0" * 32 + ":0050", "0A")
    assert read(proc__net__tcp=tcp, proc__net__tcp6=tcp6).ports == (80, 8080)


def test_a_proxys_password_is_not_kept() -> None:
    environment = {
        "HTTP_PROXY": "http://ann:hunter2@proxy:3128",
        "HF_TOKEN": "hf_x",
        "no_proxy": "a",
    }
    config = read_config(Imagined({}), LiveAnswers(environment=environment))
    assert config.environment == {"http_proxy": "http://proxy:3128", "no_proxy": "a"}


@pytest.mark.parametrize(
    ("options", "mib"),
    [("rw,size=65536k", 64), ("rw,size=2g", 2048), ("size=50%", 500), ("rw", 500)],
)
def test_size_of_shared_memory(options: str, mib: int) -> None:
    mounts = f"tmpfs /dev/shm tmpfs {options} 0 0\n"
    assert read(proc__mounts=mounts, proc__meminfo="MemTotal: 1024000 kB\n").shm_mib == mib


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
