"""The machine around the cards: names, memory, container, virtual machine, network."""

from __future__ import annotations

import pytest

from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hardware import Interface
from gaudi_launch.host.system import in_container, read_interfaces, read_system, virtual_machine

FILES = {
    "proc/sys/kernel/hostname": "server\n",
    "etc/hostname": "another\n",
    "proc/sys/kernel/osrelease": "6.8.0\n",
    "etc/os-release": "NAME=\"U\"\nPRETTY_NAME='Ubuntu 22.04'\n",
    "proc/cpuinfo": "model name\t: Xeon 8380 \nmodel name\t: other\nflags\t: fpu sse2\n",
    "sys/module/habanalabs/version": "1.22.1\n",
    "proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n",
    "proc/1/cgroup": "0::/init.scope\n",
}


def test_every_field_of_the_system_is_read() -> None:
    assert read_system(Imagined(FILES)) == {
        "hostname": "server",
        "kernel": "6.8.0",
        "os_name": "Ubuntu 22.04",
        "cpu_model": "Xeon 8380",
        "driver_version": "1.22.1",
        "memory_total_mib": 4,
        "memory_available_mib": 2,
        "in_container": False,
        "virtual_machine": False,
    }
    assert read_system(Imagined({"etc/hostname": "another\n"}))["hostname"] == "another"
    assert set(read_system(Imagined({})).values()) == {None}


@pytest.mark.parametrize("text", ["", 'PRETTY_NAME=""\n', "XPRETTY_NAME=a\n"])
def test_a_system_without_a_name_has_none(text: str) -> None:
    assert read_system(Imagined({"etc/os-release": text}))["os_name"] is None


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({".dockerenv": ""}, True),
        ({"run/.containerenv": ""}, True),
        ({"proc/1/cgroup": "0::/\n"}, False),
        ({"proc/1/cgroup": "4:pids:/kubepods/pod1\n"}, True),
        ({"proc/1/cgroup": "1:name=systemd:/docker/4f\n"}, True),
        ({"proc/1/cgroup": "0::/lxc/a\n"}, True),
        ({"proc/1/cgroup": "0::/crio-12\n"}, True),
        ({"proc/1/environ": "HOME=/\0container=podman\0"}, True),
        ({"proc/1/environ": "container=podman\0"}, True),
        ({"proc/1/environ": "XCONTAINER=no\0mycontainer=x\0"}, False),
    ],
)
def test_a_container_is_seen_by_its_files_and_by_process_1(
    files: dict[str, str], found: bool | None
) -> None:
    assert in_container(Imagined(files)) is found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"proc/cpuinfo": "flags : fpu sse2\n"}, False),
        ({"proc/cpuinfo": "flags : fpu hypervisor\n"}, True),
        ({"proc/cpuinfo": "flags : fpu hypervisors\n"}, False),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, True),
        ({"sys/class/dmi/id/product_name": "Google Compute Engine\n"}, True),
        ({"sys/class/dmi/id/product_name": "Parallels 19\n"}, True),
        ({"sys/class/dmi/id/sys_vendor": "Supermicro\n"}, False),
        # each alone names nothing, together with a blank they do
        (
            {
                "sys/class/dmi/id/sys_vendor": "Amazon\n",
                "sys/class/dmi/id/product_name": "EC2 m5\n",
            },
            True,
        ),
    ],
)
def test_a_virtual_machine_is_seen_by_its_cpu_and_its_board(
    files: dict[str, str], found: bool | None
) -> None:
    assert virtual_machine(Imagined(files)) is found


def test_an_address_is_the_interfaces_with_the_longest_route() -> None:
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
    row = "{}\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\n"
    routes = (
        head
        + row.format("wan", "00000000", "00000000")
        # 10.0.0.0/8, 10.1.0.0/16
        + row.format("wide", "0000000A", "000000FF")
        + row.format("narrow", "0000010A", "0000FFFF")
        + "short\t00000000\n"
        + row.format("odd", "0000000G", "00000000")
        + row.format("odd", "00000000", "000000000")
    )
    trie = (
        "Local:\n"
        "     |-- 10.1.0.5\n        /32 host LOCAL\n"
        "     |-- 10.2.0.5\n        /32 host LOCAL\n"
        "     |-- 10.2.0.5\n        /32 host LOCAL\n"
        "     |-- 10.3.0.5\n        /24 link UNICAST\n"
        "     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 10.256.0.1\n        /32 host LOCAL\n"
        "        /32 host LOCAL\n"
        "     |-- 192.168.0.1\n        /32 host LOCAL\n"
    )
    six = (
        "fe800000000000000000000000000001 02 40 20 80 narrow\n"
        "fe800000000000000000000000000002 02 40 20 80\n"
        "FE800000000000000000000000000003 02 40 20 80 narrow\n"
        "20010db8000000000000000000000001 03 40 00 80 wide\n"
    )
    states = {"wan": "up", "wide": "unknown", "narrow": "down", "lo": "unknown"}
    files = Imagined(
        {
            "proc/net/route": routes,
            "proc/net/fib_trie": trie,
            "proc/net/if_inet6": six,
            "sys/class/net/bonding_masters": "",
            **{f"sys/class/net/{name}/operstate": state for name, state in states.items()},
        }
    )
    assert read_interfaces(files) == (
        Interface("narrow", False, ("10.1.0.5", "fe80::1"), False),
        Interface("wan", True, (), True),
        Interface("wide", True, ("10.2.0.5", "2001:db8::1"), False),
    )
