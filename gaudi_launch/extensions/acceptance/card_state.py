"""Counters, limit and peak of a card, for the acceptance test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gaudi_launch.core.host import card_files
from gaudi_launch.core.host.accelerators import Accelerator, temperature_hot_c
from gaudi_launch.core.host.files import Files
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.host.health import read_health
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.acceptance.judge import facts

if TYPE_CHECKING:
    from gaudi_launch.core.doctor.findings import DoctorFacts

# a rise of one of these during the test is a fault of the card or of its link; of others (thermal
# and power violations, corrected errors) a warning
FAULTS = ("hard_reset_cnt", "aer_fatal", "aer_nonfatal", "uncorrectable")


def name_of(card: Card) -> str:
    """Return the name of a card in results: its module ID."""
    return str(card.module)


def read_counters(now: DoctorFacts) -> dict[str, dict[str, int]]:
    """Return the counters of each card as they are now, as far as they can be read."""
    if now.files is None or not now.host.cards:
        return {}
    host = load(None)
    health = read_health(host, now.ask, now.files)
    found = {}
    for card in host.cards:
        known = health.get(card.index or 0)
        violations = known.violations if known is not None else None
        found[name_of(card)] = {
            **card_files.counters(now.files, card),
            **{f"violation_{kind}": count for kind, count in (violations or {}).items()},
        }
    return found


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
    clock = None if files is None else card_files.driver_number(files, card, "clk_max_freq_mhz")
    if clock is None or not least <= clock <= most:
        clock = row["clock_mhz"]
    return float(row[kind] * clock / 1e6)
