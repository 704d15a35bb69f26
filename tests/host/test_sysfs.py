"""Cards, memory nodes and cores of sysfs, attribute by attribute."""

from __future__ import annotations

from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hardware import NumaNode
from gaudi_launch.host.sysfs import mib_of, read_cards, read_meminfo, read_numa_nodes, read_siblings

DEVICE = "sys/class/accel/accel2/device"
PCI = "sys/bus/pci/devices/0000:19:00.0"
ATTRIBUTES = {
    "vendor": "0x1da3\n",
    "module_id": "5\n",
    "pci_addr": "0000:19:00.0\n",
    "device_type": "GAUDI2\n",
    "status": "Operational\n",
    "driver_ver": "1.22.0\n",
    "cpucp_kernel_ver": "Linux gaudi2 5.10\n",
    "cpucp_ver": "older\n",
}


def test_every_attribute_of_a_card_is_read() -> None:
    files = Imagined(
        {
            **{f"{DEVICE}/{name}": value for name, value in ATTRIBUTES.items()},
            f"{DEVICE}/numa_node": "9\n",
            f"{PCI}/numa_node": "1\n",
            f"{PCI}/local_cpulist": "40-41\n",
            f"{PCI}/device": "0x1020\n",
            f"{PCI}/current_link_speed": "16.0 GT/s PCIe\n",
            f"{PCI}/max_link_speed": "32.0 GT/s PCIe\n",
            f"{PCI}/current_link_width": "8\n",
            f"{PCI}/max_link_width": "16\n",
            "dev/accel/accel2": "",
            # the device of another vendor, a card above the largest index, and no card
            "sys/class/accel/accel0/device/vendor": "0x8086\n",
            "sys/class/accel/accel4096/device/vendor": "0x1da3\n",
            "sys/class/accel/accel7/device/uevent": "x\n",
            # the class that older drivers used is not read where the new one has cards
            "sys/class/habanalabs/hl8/device/vendor": "0x1da3\n",
        }
    )
    (card,) = read_cards(files)
    card.settle()
    assert (card.values.pop("product"), card.sources.pop("product")) == ("HL-225", "PCI id")
    assert card.values == {
        "index": 2,
        "module": 5,
        "bus": "0000:19:00.0",
        "device_type": "GAUDI2",
        "status": "Operational",
        "driver": "1.22.0",
        "firmware": "Linux gaudi2 5.10",
        "device_node": "/dev/accel/accel2",
        "numa_node": 1,
        "cpus": (40, 41),
        "pcie_speed": "16.0 GT/s PCIe",
        "pcie_max_speed": "32.0 GT/s PCIe",
        "pcie_width": 8,
        "pcie_max_width": 16,
    }


def test_a_card_of_an_older_driver_is_read_without_what_it_lacks() -> None:
    files = Imagined(
        {
            "sys/class/habanalabs/hl3/device/armcp_ver": "1\n",
            "sys/class/habanalabs/hl3/device/cpucp_ver": "1.13\n",
            "sys/class/habanalabs/hl3/device/pci_addr": "not an address\n",
            "sys/class/habanalabs/hl3/device/numa_node": "-1\n",
            "dev/hl3": "",
        }
    )
    (card,) = read_cards(files)
    assert card.values == {"index": 3, "firmware": "1.13", "device_node": "/dev/hl3"}


def test_the_drivers_name_of_a_card_counts_where_its_pci_id_is_unknown() -> None:
    device = "sys/class/accel/accel0/device"
    files = Imagined({f"{device}/vendor": "0x1da3", f"{device}/device_type": "GAUDI3"})
    (card,) = read_cards(files)
    card.settle()
    assert (card.get("product"), card.sources["product"]) == ("HL-325", "sysfs device_type")


def test_the_memory_of_each_node_is_in_mib() -> None:
    node = "sys/devices/system/node/node"
    files = Imagined(
        {
            f"{node}10/cpulist": "8-9\n",
            f"{node}2/cpulist": "0-3\n",
            f"{node}2/meminfo": "Node 2 MemTotal:  4096 kB\nNode 2 MemFree:  2047 kB\n",
            f"{node}2/hugepages/hugepages-2048kB/nr_hugepages": "30\n",
            f"{node}2/hugepages/hugepages-2048kB/free_hugepages": "20\n",
        }
    )
    assert read_numa_nodes(files) == (
        NumaNode(2, (0, 1, 2, 3), 4, 1, 30, 20),
        NumaNode(10, (8, 9), None, None, None, None),
    )


def test_a_meminfo_line_is_a_name_and_a_number() -> None:
    text = "MemTotal: 12 kB\nNode 0 MemFree: 3\nMemTotal: 99 kB\nOdd: x\nNone:\n: 5\nno colon\n"
    assert read_meminfo(text) == {"MemTotal": 12, "MemFree": 3}
    assert (mib_of(None), mib_of(1023), mib_of(1024)) == (None, 0, 1)


def test_the_cores_of_the_cpus_that_are_online() -> None:
    cpu = "sys/devices/system/cpu"
    files = Imagined(
        {
            f"{cpu}/online": "0-2,4-7\n",
            f"{cpu}/cpu0/topology/thread_siblings_list": "0,2\n",
            f"{cpu}/cpu1/topology/core_cpus_list": "1,3\n",
            f"{cpu}/cpu2/topology/thread_siblings_list": "0,2\n",
            f"{cpu}/cpu3/topology/thread_siblings_list": "1,3\n",
            # it does not name itself
            f"{cpu}/cpu4/topology/thread_siblings_list": "0\n",
            f"{cpu}/cpu5/cache": "x",
            f"{cpu}/cpu6/topology/thread_siblings_list": "6-7\n",
            f"{cpu}/cpu7/topology/thread_siblings_list": "6-7\n",
        }
    )
    assert read_siblings(files) == {0: (0, 2), 1: (1,), 2: (0, 2), 4: (4,), 6: (6, 7), 7: (6, 7)}
