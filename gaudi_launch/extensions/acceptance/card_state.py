"""Counters, clocks and maxima of the cards, from files of driver and kernel.

hard_reset_cnt, clk_max_freq_mhz: linux Documentation/ABI/testing/sysfs-driver-habanalabs; the
maxima: the driver's hwmon.c; AER: Documentation/ABI/testing/sysfs-bus-pci-devices-aer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gaudi_launch.core.host.accelerators import Accelerator, temperature_hot_c
from gaudi_launch.core.host.files import Files, captured, content, natural_number
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.host.health import CardHealth, read_health
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.acceptance.judge import facts

if TYPE_CHECKING:
    from gaudi_launch.core.doctor.findings import DoctorFacts

_AER = ("correctable", "fatal", "nonfatal")
# a rise during the test: a fault of the card, of its link, or of the cooling
FAULTS = ("hard_reset_cnt", "aer_fatal", "aer_nonfatal", "uncorrectable")
WARNINGS = ("aer_correctable", "violation_thermal", "violation_power")


def name_of(card: Card) -> str:
    """Return the name of a card in results: its module ID."""
    return str(card.module)


def _driver_number(files: Files, card: Card, name: str) -> int | None:
    for folder in (
        f"sys/class/accel/accel{card.index}/device",
        f"sys/class/habanalabs/hl{card.index}",
    ):
        found = natural_number(files.text(f"{folder}/{name}"))
        if found is not None:
            return found
    return None


def _sensor(files: Files, card: Card, name: str) -> int | None:
    """Return a reading of the card's hwmon, None for 0."""
    folder = f"sys/bus/pci/devices/{card.bus}/hwmon"
    for each in files.names(folder):
        found = natural_number(files.text(f"{folder}/{each}/{name}"))
        if found:
            return found
    return None


def read_counters(now: DoctorFacts) -> dict[str, dict[str, int]]:
    """Return the counters of each card as they are now, as far as they can be read."""
    if now.files is None or not now.host.cards:
        return {}
    host = load(None)
    health = read_health(host, now.ask, now.files)
    return {
        name_of(card): _counters(now.files, card, health.get(card.index or 0))
        for card in host.cards
    }


def _counters(files: Files, card: Card, health: CardHealth | None) -> dict[str, int]:
    found: dict[str, int | None] = {
        "hard_reset_cnt": _driver_number(files, card, "hard_reset_cnt"),
        "uncorrectable": card.uncorrectable_events,
    }
    for kind in _AER:
        text = content(files, f"sys/bus/pci/devices/{card.bus}/aer_dev_{kind}")
        # "TOTAL_ERR_FATAL 0" is the last line
        found[f"aer_{kind}"] = natural_number(captured(r"TOTAL_ERR_\w+ (\d+)", text))
    if health is not None:
        for kind, count in (health.violations or {}).items():
            found[f"violation_{kind}"] = count
    return {name: count for name, count in found.items() if count is not None}


def maxima(files: Files, card: Card) -> dict[str, float]:
    """Return the highest temperature (C) and power (W) since they were last reset."""
    found = {
        "temperature_c": _sensor(files, card, "temp1_highest"),
        "limit_c": _sensor(files, card, "temp1_crit"),
    }
    watts = _sensor(files, card, "power1_input_highest")
    shown = {name: value / 1000 for name, value in found.items() if value is not None}
    return shown if watts is None else {**shown, "power_w": watts / 1e6}


def hot_limit(card: Card, product: str, highest: Mapping[str, float]) -> tuple[float, str]:
    """Return a card's temperature limit and its source; else the product's."""
    if "limit_c" in highest:
        return highest["limit_c"], "temp1_crit"
    return temperature_hot_c(product or None)


def matrix_peak(files: Files | None, card: Card, product: Accelerator, kind: str) -> float | None:
    """Return the peak in TFLOPS at the card's own clock; None where it is not known."""
    row = facts()["operations"].get(product.id)
    if row is None:
        return None
    least, most = (share * row["clock_mhz"] for share in facts()["clock_range"])
    clock = None if files is None else _driver_number(files, card, "clk_max_freq_mhz")
    if clock is None or not least <= clock <= most:
        clock = row["clock_mhz"]
    return float(row[kind] * clock / 1e6)


def link_peak(card: Card) -> float | None:
    """Return the GB/s of the negotiated PCIe link, each way (128b/130b code)."""
    speed = captured(r"(\d+(?:\.\d+)?)", card.pcie_speed or "")
    if speed is None or not card.pcie_width:
        return None
    return float(speed) * card.pcie_width * 128 / 130 / 8
