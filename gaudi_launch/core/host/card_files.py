"""Counters, clocks and sensors of a card, from files of driver and kernel.

hard_reset_cnt, clk_max_freq_mhz: linux Documentation/ABI/testing/sysfs-driver-habanalabs; the
sensors: drivers/accel/habanalabs/common/hwmon.c, in the units of Documentation/hwmon/
sysfs-interface; AER: Documentation/ABI/testing/sysfs-bus-pci-devices-aer.
"""

from __future__ import annotations

from gaudi_launch.core.host.files import Files, captured, content, natural_number
from gaudi_launch.core.host.hardware import Card

_AER = ("correctable", "fatal", "nonfatal")


def driver_number(files: Files, card: Card, name: str) -> int | None:
    """Return a number that the driver has for a card."""
    for folder in (
        f"sys/class/accel/accel{card.index}/device",
        f"sys/class/habanalabs/hl{card.index}",
    ):
        found = natural_number(files.text(f"{folder}/{name}"))
        if found is not None:
            return found
    return None


def sensor(files: Files, card: Card, name: str) -> int | None:
    """Return a reading of the card's hwmon, None for 0."""
    folder = f"sys/bus/pci/devices/{card.bus}/hwmon"
    for each in files.names(folder):
        found = natural_number(files.text(f"{folder}/{each}/{name}"))
        if found:
            return found
    return None


def counters(files: Files, card: Card) -> dict[str, int]:
    """Return the counters of resets and errors, as far as they can be read."""
    found: dict[str, int | None] = {
        "hard_reset_cnt": driver_number(files, card, "hard_reset_cnt"),
        "uncorrectable": card.uncorrectable_events,
    }
    for kind in _AER:
        text = content(files, f"sys/bus/pci/devices/{card.bus}/aer_dev_{kind}")
        # "TOTAL_ERR_FATAL 0" is the last line
        found[f"aer_{kind}"] = natural_number(captured(r"TOTAL_ERR_\w+ (\d+)", text))
    return {name: count for name, count in found.items() if count is not None}


def maxima(files: Files, card: Card) -> dict[str, float]:
    """Return the highest temperature (C) and power (W) since they were last reset."""
    found = {
        "temperature_c": sensor(files, card, "temp1_highest"),
        "limit_c": sensor(files, card, "temp1_crit"),
    }
    watts = sensor(files, card, "power1_input_highest")
    shown = {name: value / 1000 for name, value in found.items() if value is not None}
    return shown if watts is None else {**shown, "power_w": watts / 1e6}


def link_peak(card: Card) -> float | None:
    """Return the GB/s of the negotiated PCIe link, each way (128b/130b code)."""
    speed = captured(r"(\d+(?:\.\d+)?)", card.pcie_speed or "")
    if speed is None or not card.pcie_width:
        return None
    return float(speed) * card.pcie_width * 128 / 130 / 8
