"""Files of a simulated machine: a small one file by file, its variants by what they change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gaudi_launch.host.simulated import BOXES, VARIANTS, server_of
from gaudi_launch.host.simulated_files import SimulatedServer, files_of, hl_smi_of
from tests.support.cli import golden
from tests.support.machines import SMALL


def seen(options: Mapping[str, tuple[int, ...]], box: SimulatedServer = SMALL) -> dict[str, Any]:
    """Return files, links and hl-smi's data by one name each."""
    files, links = files_of(box, options)
    data = hl_smi_of(box, options)
    cards = {f"card {card['module_id']}": card for card in data.pop("cards")}
    return {**files, **links, "hl-smi": data, **cards}


def test_the_files_of_a_small_machine_and_of_its_variants() -> None:
    plain = seen({})
    shown: dict[str, Any] = {"plain": plain}
    for name, (takes_modules, _) in VARIANTS.items():
        if name == "no-smt":
            continue
        variant = seen({name: (1,) if takes_modules else ()})
        changed = {key: value for key, value in variant.items() if plain.get(key) != value}
        shown[name] = {"changed": changed, "gone": sorted(plain.keys() - variant.keys())}
    golden("simulated-machine.json", json.dumps(shown, indent=1, sort_keys=True) + "\n")


def test_a_variant_without_a_driver_has_no_process_on_its_cards() -> None:
    assert seen({"busy": (1,), "no-driver": ()}) == seen({"no-driver": ()})


def test_without_smt_a_core_is_one_cpu() -> None:
    box = SimulatedServer("gaudi3", "HL-325L", ((0, "a3"), (1, "e9")), 1, "Xeon", smt=False)
    files = seen({}, box)
    cpu = "sys/devices/system/cpu"
    names = (
        f"{cpu}/online",
        f"{cpu}/smt/active",
        f"{cpu}/cpu1/topology/thread_siblings_list",
        "sys/devices/system/node/node0/cpulist",
    )
    assert [files[name] for name in names] == ["0-1\n", "0\n", "1\n", "0\n"]


def test_the_machines_that_can_be_simulated() -> None:
    shown = {}
    for name, box in BOXES.items():
        one = seen({}, box)
        assert server_of(box.product) is not None
        shown[name] = {
            **asdict(box),
            "ports": [*one["card 0"]["ports"]],
            "link": one[f"sys/bus/pci/devices/{one['card 0']['bus_id']}/max_link_speed"],
            "device_type": one["sys/class/accel/accel0/device/device_type"],
        }
    golden("simulated-boxes.json", json.dumps(shown, sort_keys=True) + "\n")
