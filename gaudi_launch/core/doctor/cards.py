"""The cards: present, healthy, reachable, free.

A problem on a card that was not chosen is only a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Shown, Verdict, check
from gaudi_launch.core.host.accelerators import accelerators, temperature_hot_c
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.health import CardHealth
from gaudi_launch.core.host.read import read_ports

# the folder of the vendor's tests
QUAL = "opt/habanalabs/qual"
# ports between the cards of one box; the others go outside (HabanaAI/HCL@54fed3a server types;
# Gaudi2E 1.23.0 manual: 6-9 scale out, 22-23 not connected)
_UNREAD = CardHealth(index=-1)
_INTERNAL = {
    "gaudi2": frozenset(range(24)) - {8, 22, 23},
    "gaudi2e": frozenset((*range(6), *range(10, 22))),
    "gaudi3-pcie": frozenset((*range(2, 8), *range(12, 24))),
}


def _name(card: Card) -> str:
    if card.module is not None:
        return f"module {card.module}"
    return f"accel{card.index}"


def _list(cards: Sequence[Card]) -> str:
    return ", ".join(_name(card) for card in cards)


def _judge(
    facts: DoctorFacts, bad: Sequence[Card], id: str, found: str, expected: str, remedy: Remedy
) -> Verdict:
    """Return a failure for a chosen card (or without a choice), a warning otherwise."""
    if facts.concerned(bad):
        return Verdict.fail(id, found, expected, remedy, cards=_list(bad))
    return Verdict.warn(id, found, expected, remedy, cards=_list(bad))


@check("cards.present", "linux drivers/accel/habanalabs (vendor 1da3)")
def _present(facts: DoctorFacts) -> Verdict:
    seen, bus = len(facts.host.cards), facts.config.pci_devices
    if not facts.wants.gaudi:
        return Verdict.skip("doctor.cards.present.not_needed")
    if seen:
        missing = len(bus or ()) - seen
        if missing > 0 and not facts.host.in_container:
            remedy = Remedy(
                message("doctor.cards.present.dmesg"), commands=("sudo dmesg | grep -i habana",)
            )
            return Verdict.warn("doctor.cards.present.warn", str(seen), str(len(bus or ())), remedy)
        return Verdict.ok(str(seen), ">= 1")
    if bus:
        return Verdict.fail("doctor.cards.present.no_driver", "0", str(len(bus)))
    if bus is None:
        return Verdict.unreadable("/sys/bus/pci/devices", ">= 1")
    remedy = Remedy(message("doctor.cards.present.remedy"), commands=("lspci -d 1da3:",))
    return Verdict.fail("doctor.cards.present.fail", "0", ">= 1", remedy)


@check("cards.count", "profiles/accelerators.yaml", ("cards",))
def _count(facts: DoctorFacts) -> Verdict:
    product = accelerators().get(facts.host.product or "")
    seen, wanted = len(facts.host.cards), facts.wants.cards
    if wanted is not None and seen < wanted:
        return Verdict.fail("doctor.cards.count.fail", str(seen), f">= {wanted}")
    if product is None:
        return Verdict.unknown("doctor.cards.product", str(seen))
    expected = str(product.cards)
    # PCIe boxes are sold with complete groups of four, OAM boxes only full; a container may be
    # given fewer
    if (
        seen == product.cards
        or (seen and seen % product.group_size == 0)
        or facts.host.in_container
    ):
        return Verdict.ok(str(seen), expected)
    remedy = Remedy(
        message("doctor.cards.present.dmesg"), commands=("sudo dmesg | grep -i habana",)
    )
    return Verdict.warn(
        "doctor.cards.count.warn", str(seen), expected, remedy, product=product.title
    )


@check("cards.nodes", "linux drivers/accel/habanalabs: /dev/accel", ("cards",))
def _nodes(facts: DoctorFacts) -> Verdict:
    nodes = facts.config.device_nodes
    without = [
        card for card in facts.host.cards if card.index is not None and not _node_of(card, nodes)
    ]
    # where nothing of the host can be read, a missing /dev proves nothing about its nodes
    if not nodes and facts.config.command_line is None:
        return Verdict.unreadable("/dev/accel")
    if without:
        remedy = Remedy(message("doctor.cards.nodes.missing_remedy"))
        if facts.host.in_container:
            remedy = Remedy(message("doctor.cards.nodes.container"), commands=("--runtime=habana",))
        return _judge(
            facts,
            without,
            "doctor.cards.nodes.missing",
            str(len(nodes)),
            "/dev/accel/accel*",
            remedy,
        )
    closed = [node for node, allowed in nodes.items() if not allowed]
    if not closed:
        return Verdict.ok(str(len(nodes)), "rw")
    remedy = Remedy(
        message("doctor.cards.nodes.remedy"),
        commands=("sudo usermod -aG render,video $USER",),
        root=True,
    )
    return Verdict.fail("doctor.cards.nodes.fail", ", ".join(closed), "rw", remedy)


def _node_of(card: Card, nodes: object) -> bool:
    return isinstance(nodes, dict) and any(
        n in nodes for n in (f"/dev/accel/accel{card.index}", f"/dev/hl{card.index}")
    )


@dataclass(frozen=True)
class _Readings:
    """One value of every card that reports it: ``read`` returns None for the others.

    ``what`` names it, ``expected`` is its good value as text.
    """

    cards: tuple[Card, ...]
    what: str
    expected: str
    read: Callable[[Card], object]

    def judged(
        self, is_bad: Callable[[Card], bool], worse: Callable[[list[Card], str], Verdict]
    ) -> Verdict:
        """Return ``worse`` of the bad cards and their values; unknown without any value."""
        reporting = [card for card in self.cards if self.read(card) is not None]
        if not reporting:
            return Verdict.unknown("doctor.cards.unread", "", self.expected, what=self.what)
        bad = [card for card in reporting if is_bad(card)]
        if not bad:
            return Verdict.ok(self.expected, self.expected)
        return worse(bad, ", ".join(f"{_name(card)}: {self.read(card)}" for card in bad))


@check("cards.status", "linux Documentation/ABI/testing/sysfs-driver-habanalabs", ("cards",))
def _status(facts: DoctorFacts) -> Verdict:
    remedy = Remedy(
        message("doctor.cards.status.remedy"), commands=("sudo dmesg | grep -i habana",)
    )
    readings = _Readings(
        facts.host.cards, "status", "Operational", lambda card: card.status or None
    )
    return readings.judged(
        lambda card: card.status != "Operational",
        lambda bad, found: _judge(
            facts, bad, "doctor.cards.status.fail", found, "Operational", remedy
        ),
    )


@check(
    "cards.temperature",
    "docs: System Verifications (0 C: failed to initialise); heat: assumed",
    ("cards",),
)
def _temperature(facts: DoctorFacts) -> Verdict:
    reporting = [card for card in facts.host.cards if card.temperature_c is not None]
    if not reporting:
        return Verdict.unknown("doctor.cards.unread", "", "> 0 C", what="temperature")
    bad = [card for card in reporting if card.temperature_c == 0]
    if bad:
        remedy = Remedy(
            message("doctor.cards.status.remedy"), commands=("sudo dmesg | grep -i habana",)
        )
        found = ", ".join(f"{_name(card)}: 0 C" for card in bad)
        return _judge(facts, bad, "doctor.cards.temperature.fail", found, "> 0 C", remedy)
    limit, source = temperature_hot_c(facts.host.product)
    expected = message("doctor.cards.temperature.expected", limit=limit, source=source)
    hot = [card for card in reporting if (card.temperature_c or 0) >= limit]
    if hot:
        found = ", ".join(f"{_name(card)}: {card.temperature_c} C" for card in hot)
        remedy = Remedy(message("doctor.cards.temperature.remedy"))
        return Verdict.warn("doctor.cards.temperature.hot", found, expected, remedy, limit=limit)
    numbers = [card.temperature_c or 0 for card in reporting]
    return Verdict.ok(f"{min(numbers)}-{max(numbers)} C", expected)


@check("cards.power_cap", "profiles/accelerators.yaml", ("cards",))
def _power_cap(facts: DoctorFacts) -> Verdict:
    product = accelerators().get(facts.host.product or "")
    if product is None or product.power_w is None:
        return Verdict.unknown("doctor.cards.product")
    expected: Shown = f"{product.power_w} W"
    if product.sources["power_w"].startswith("assumed"):
        expected = message("doctor.cards.power_cap.assumed", power=product.power_w)
    reporting = [
        card
        for card in facts.host.cards
        if card.power_cap_w and card.product in product.power_names
    ]
    if not reporting:
        return Verdict.unknown("doctor.cards.unread", "", expected, what="power limit")
    low = [card for card in reporting if (card.power_cap_w or 0) < product.power_w]
    if not low:
        return Verdict.ok(
            ", ".join(
                f"{watts} W" for watts in sorted({card.power_cap_w or 0 for card in reporting})
            ),
            expected,
        )
    found = ", ".join(f"{_name(card)}: {card.power_cap_w} W" for card in low)
    remedy = Remedy(message("doctor.cards.power_cap.remedy"))
    return Verdict.warn("doctor.cards.power_cap.warn", found, expected, remedy)


@check("cards.memory", "profiles/accelerators.yaml", ("cards",))
def _memory(facts: DoctorFacts) -> Verdict:
    product = accelerators().get(facts.host.product or "")
    if product is None:
        return Verdict.unknown("doctor.cards.product")
    full = product.memory_total_mib
    expected, remedy = f"{full:,} MiB", Remedy(message("doctor.cards.support"))

    def size(card: Card) -> str | None:
        if card.memory_total_mib is None:
            return None
        return f"{card.memory_total_mib:,} MiB"

    return _Readings(facts.host.cards, "memory", expected, size).judged(
        lambda card: (card.memory_total_mib or 0) < full,
        lambda _, found: Verdict.warn("doctor.cards.memory.warn", found, expected, remedy),
    )


def _heat(card: Card, health: CardHealth) -> list[str]:
    found = list(health.slowdowns or ())
    thermal = (health.violations or {}).get("thermal", 0)
    if thermal:
        found.append(f"stats.violation.thermal {thermal}")
    if health.limit_c is not None and (card.temperature_c or 0) >= health.limit_c:
        found.append(f"{card.temperature_c} C (temp1_crit {health.limit_c} C)")
    return found


@check("cards.events", "docs: hl-smi (uncorrectable events)", ("cards",))
def _events(facts: DoctorFacts) -> Verdict:
    remedy = Remedy(message("doctor.cards.support"))
    readings = _Readings(
        facts.host.cards, "uncorrectable events", "0", lambda card: card.uncorrectable_events
    )
    return readings.judged(
        lambda card: bool(card.uncorrectable_events),
        lambda _, found: Verdict.warn("doctor.cards.events.warn", found, "0", remedy),
    )


def health_of(facts: DoctorFacts, card: Card) -> CardHealth:
    """Return the health of a card; a record without values where it is not known."""
    if card.index is None:
        return _UNREAD
    return facts.health.get(card.index, _UNREAD)


@check("cards.pcie", "linux drivers/pci: current_link_*, max_link_*", ("cards", "host"))
def _pcie(facts: DoctorFacts) -> Verdict:
    reporting = [c for c in facts.host.cards if c.pcie_width and c.pcie_max_width]
    if not reporting:
        return Verdict.unknown("doctor.cards.unread", what="PCIe link")
    slow = list(filter(_is_slow, reporting))
    first = reporting[0]
    expected = f"x{first.pcie_max_width} {first.pcie_max_speed}"
    if not slow:
        return Verdict.ok(f"x{first.pcie_width} {first.pcie_speed}", expected)
    found = ", ".join(f"{_name(card)}: x{card.pcie_width} {card.pcie_speed}" for card in slow)
    return Verdict.warn(
        "doctor.cards.pcie.warn", found, expected, Remedy(message("doctor.cards.pcie.remedy"))
    )


@check("cards.free", "facts of `gaudi-launch devices`", ("cards",))
def _free(facts: DoctorFacts) -> Verdict:
    cards = facts.host.cards
    busy = [card for card in cards if card.busy]
    found = ", ".join(f"{_name(card)}: {users(card)}" for card in busy) or "-"
    chosen = [card for card in busy if card.module in facts.wants.modules]
    remedy = Remedy(message("doctor.cards.free.remedy"), commands=("gaudi-launch devices",))
    free = len([card for card in cards if card.busy is False])
    if chosen:
        return Verdict.fail("doctor.cards.free.chosen", found, "free", remedy, cards=_list(chosen))
    wanted, left = facts.wants.cards, len(cards) - len(busy)
    if wanted is not None and left < wanted:
        return Verdict.fail("doctor.cards.free.few", found, f">= {wanted}", remedy, free=left)
    if left == 0:
        return Verdict.warn("doctor.cards.free.none", found, ">= 1", remedy)
    if free == 0:
        return Verdict.unknown("doctor.cards.free.unknown", found, ">= 1")
    shown = f"{free} / {len(cards)}"
    if busy:
        shown = f"{shown} ({found})"
    return Verdict.ok(shown, ">= 1")


def _gigatransfers(text: str | None) -> float:
    """Return the number of a PCIe speed; 0.0 where it is not known."""
    match = re.match(r"(\d+(?:\.\d+)?)", text or "")
    if match is None:
        return 0.0
    return float(match[1])


def _is_slow(card: Card) -> bool:
    """Return True for a PCIe link below what its slot can do."""
    if (card.pcie_width or 0) < (card.pcie_max_width or 0):
        return True
    # an unknown speed is not slow
    return 0 < _gigatransfers(card.pcie_speed) < _gigatransfers(card.pcie_max_speed)


@check("cards.visible", "HabanaAI/gaudi-container-runtime; vllm-project/vllm-gaudi#946", ("cards",))
def _visible(facts: DoctorFacts) -> Verdict:
    environment = facts.config.environment
    devices, modules = (
        environment.get("HABANA_VISIBLE_DEVICES"),
        environment.get("HABANA_VISIBLE_MODULES"),
    )
    error = environment.get("HABANA_RUNTIME_ERROR")
    shown = f"HABANA_VISIBLE_DEVICES={devices or '-'} HABANA_VISIBLE_MODULES={modules or '-'}"
    remedy = Remedy(
        message("doctor.cards.visible.remedy"),
        commands=("--runtime=habana -e HABANA_VISIBLE_DEVICES=all",),
    )
    if error:
        return Verdict.fail("doctor.cards.visible.error", error, "-", remedy)
    known = set(facts.host.modules)
    wrong = [
        m
        for m in re.split(r"[,\s]+", modules or "")
        if m and m != "all" and not (m.isdecimal() and int(m) in known)
    ]
    if wrong:
        fix = Remedy(message("doctor.cards.visible.modules_remedy"))
        allowed = ",".join(map(str, sorted(known)))
        return Verdict.fail(
            "doctor.cards.visible.modules", str(modules), allowed, fix, wrong=",".join(wrong)
        )
    if facts.host.in_container and facts.live and not devices and not modules:
        return Verdict.warn("doctor.cards.visible.unset", shown, "HABANA_VISIBLE_DEVICES", remedy)
    return Verdict.ok(shown)


@check(
    "cards.throttling",
    "docs: hl-smi (throttle reasons, stats.violation.*); linux drivers/accel/habanalabs hwmon.c",
    ("cards",),
    "slow",
    20.0,
)
def _throttling(facts: DoctorFacts) -> Verdict:
    """Return the cards with throttling: now, earlier by heat, or at their limit.

    The limit is the one that the card itself reports.
    """
    health = facts.health
    reporting = [
        one for one in health.values() if one.slowdowns is not None or one.violations is not None
    ]
    if not reporting:
        return Verdict.unknown("doctor.cards.unread", "", "Not Active", what="throttling")
    lines = []
    for card in facts.host.cards:
        lines += [f"{_name(card)}: {trouble}" for trouble in _heat(card, health_of(facts, card))]
    if lines:
        remedy = Remedy(
            message("doctor.cards.temperature.remedy"), commands=("hl-smi -q -d TEMPERATURE",)
        )
        return Verdict.warn("doctor.cards.throttling.warn", "; ".join(lines), "Not Active", remedy)
    power = sum((one.violations or {}).get("power", 0) for one in reporting)
    if power:
        return Verdict.ok(
            f"stats.violation.power {power}", "Not Active", "doctor.cards.throttling.power"
        )
    return Verdict.ok("Not Active", "Not Active")


def users(card: Card) -> str:
    """Return the processes that have a card, or why it counts as in use."""
    return (
        "; ".join(f"{holder.command or '?'} ({holder.pid})" for holder in card.holders)
        or card.busy_because
        or "?"
    )


def qual_kind(host: Host) -> str:
    """Return the folder of these cards' tests below `QUAL`, gaudi2 or gaudi3."""
    if "gaudi3" in (host.product or ""):
        return "gaudi3"
    return "gaudi2"


def _has_port_down(card: Card, product: str) -> bool:
    """Return True for a card with a port down that must be up.

    External ports of Gaudi3 OAM differ from module to module, so a port that is down may be one of
    three.
    """
    down = set(card.ports_down or ())
    if product in _INTERNAL:
        return not down.isdisjoint(_INTERNAL[product])
    return len(down) > 3


@check(
    "cards.rows",
    "docs: hl-smi (ROW_REPLACEMENT); HLML: rows pending",
    ("cards",),
    "slow",
    20.0,
)
def _rows(facts: DoctorFacts) -> Verdict:
    def pending(card: Card) -> bool | None:
        return health_of(facts, card).rows_pending

    remedy = Remedy(message("doctor.cards.rows.remedy"), commands=("hl-smi -q -d ROW_REPLACEMENT",))
    return _Readings(facts.host.cards, "row replacement", "No", pending).judged(
        lambda card: bool(pending(card)),
        lambda bad, _: Verdict.warn("doctor.cards.rows.warn", _list(bad), "No", remedy),
    )


@check(
    "cards.links",
    "Gaudi2E 1.23.0 manual; HabanaAI/HCL server types",
    ("cards", "host"),
    "slow",
    20.0,
)
def _links(facts: DoctorFacts) -> Verdict:
    host = facts.host
    if facts.live or facts.ask:
        host = read_ports(host, facts.ask)
    reporting = [card for card in host.cards if card.ports_up is not None]
    if not reporting:
        return Verdict.unknown("doctor.cards.unread", "", "UP", what="ports")
    down = [card for card in reporting if _has_port_down(card, host.product or "")]
    if not down:
        return Verdict.ok(f"{len(reporting)} x UP", "UP")
    found = ", ".join(
        f"{_name(card)}: {','.join(map(str, card.ports_down or ()))}" for card in down
    )
    command = f"sudo /{QUAL}/{qual_kind(host)}/bin/manage_network_ifs.sh --up"
    remedy = Remedy(message("doctor.cards.links.remedy"), commands=(command,), root=True)
    if facts.wants.cards == 1 or len(facts.wants.modules) == 1:
        return Verdict.warn("doctor.cards.links.fail", found, "UP", remedy, cards=_list(down))
    return _judge(facts, down, "doctor.cards.links.fail", found, "UP", remedy)
