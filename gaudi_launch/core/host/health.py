"""Condition of the cards: throttling, memory rows, firmware, temperature limit.

Read on demand only: a card's sensors and hl-smi's long list are answered by the card's firmware,
which takes seconds on a loaded server. Layout of the long list: `hl-smi -L` of release 1.12.1
(tests/data/hl-smi); fields of the violation query: docs, System Management Interface Tool (hl-smi).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gaudi_launch.core.host import hl_smi_text
from gaudi_launch.core.host.card_files import sensor
from gaudi_launch.core.host.files import Files, captured
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.hl_smi import Ask

_SLOWDOWNS = ("HW Slowdown", "Thermal Slowdown", "Power Slowdown")
_ROWS = "Pending"


@dataclass(frozen=True)
class CardHealth:
    """The condition of one card, by hl-smi's index. None where nothing reports it.

    ``slowdowns`` are the throttle reasons that are active now (``Thermal Slowdown``);
    ``violations`` the counters of past ones by cause (``thermal``, ``power``; the unit is not
    documented). ``limit_c`` is the critical temperature that the card itself reports (hwmon
    temp1_crit).
    """

    index: int
    slowdowns: tuple[str, ...] | None = None
    violations: Mapping[str, int] | None = None
    rows_pending: bool | None = None
    spi: str | None = None
    fit: str | None = None
    limit_c: int | None = None


def read_health(host: Host, ask: Ask | None, files: Files | None) -> dict[int, CardHealth]:
    """Return the condition of every card that has an index.

    Fields are empty where hl-smi and the files report nothing.
    """
    found = {card.index: CardHealth(card.index) for card in host.cards if card.index is not None}
    if files is not None:
        for card in host.cards:
            if card.index in found:
                # the critical temperature
                limit = (sensor(files, card, "temp1_crit") or 0) // 1000 or None
                found[card.index] = replace(found[card.index], limit_c=limit)
    if ask is None:
        return found
    for index, facts in _long_list(ask).items():
        if index in found:
            reported = [name for name in _SLOWDOWNS if name in facts]
            active = tuple(name for name in reported if facts[name].lower() == "active")
            pending = facts.get(_ROWS, "").lower()
            found[index] = replace(
                found[index],
                slowdowns=active if reported else None,
                rows_pending={"yes": True, "no": False}.get(pending),
                spi=_firmware(facts.get("Firmware [SPI] Version")),
                fit=_firmware(facts.get("Firmware [FIT] Version")),
            )
    for index, counters in _violations(ask).items():
        if index in found:
            found[index] = replace(found[index], violations=counters)
    return found


def _long_list(ask: Ask) -> dict[int, dict[str, str]]:
    """Return the long list of each card, by index.

    ``-q`` where ``-L`` of this release has become a short one.
    """
    found: dict[int, dict[str, str]] = {}
    for option in ("-L", "-q"):
        answer = ask([option])
        if answer.timed_out:
            break
        if answer.problem is None:
            found = hl_smi_text.parse_log(answer.text) or found
        if any(_ROWS in facts for facts in found.values()):
            break
    return found


def _firmware(text: str | None) -> str | None:
    """Return ``1.22.1`` of ``Preboot version hl-gaudi2-1.22.1-fw-61.4.2``."""
    return captured(r"hl-gaudi[\w-]*?-(\d{1,4}\.\d{1,4}\.\d{1,4})", text or "")


def _violations(ask: Ask) -> dict[int, dict[str, int]]:
    answer = ask(hl_smi_text.VIOLATIONS)
    if answer.problem is not None:
        return {}
    return hl_smi_text.parse_violations(answer.text)
