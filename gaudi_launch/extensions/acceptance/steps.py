"""Measure each step of the acceptance test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor import runner
from gaudi_launch.core.doctor.cards import health_of
from gaudi_launch.core.doctor.findings import DoctorFacts
from gaudi_launch.core.host import card_files
from gaudi_launch.core.host.accelerators import temperature_hot_c
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.acceptance import tools
from gaudi_launch.extensions.acceptance.records import NoFigure, Step, StepMeasurement, facts
from gaudi_launch.extensions.acceptance.served import served
from gaudi_launch.extensions.acceptance.tools import TestBed, name_of

Trouble = tuple[str, Message]
Measure = Callable[[TestBed, Step], StepMeasurement]

# a rise of one of these during the test is a fault of the card or of its link; of others (thermal
# and power violations, corrected errors) a warning
_FAULTS = ("hard_reset_cnt", "aer_fatal", "aer_nonfatal", "uncorrectable")
_NONE = -1


def _checks(bed: TestBed, step: Step) -> StepMeasurement:
    """Return the findings of doctor's own checks about driver, cards and links."""
    chosen = runner.select(("driver", "cards"), ("cards.free",))
    findings = runner.run(chosen, bed.facts)
    troubles = [
        (each.status, message("accept.finding", check=each.id, message=each.message.render()))
        for each in findings
        if each.status in ("fail", "warn")
    ]
    rows = {each.id: each.status for each in findings}
    return StepMeasurement(troubles=troubles, details={"findings": rows})


def _firmware(bed: TestBed, step: Step) -> StepMeasurement:
    """Compare the firmware of the cards: all must be equal."""
    versions: dict[str, str] = {}
    for card in bed.facts.host.cards:
        known = health_of(bed.facts, card)
        versions[name_of(card)] = " / ".join(filter(None, (known.spi, known.fit, card.firmware)))
    if not any(versions.values()):
        raise NoFigure("skipped", message("accept.unread", what="firmware"))
    odd, usual = _odd(versions)
    troubles = [
        ("fail", message("accept.firmware", who=who, found=versions[who] or "-", expected=usual))
        for who in odd
    ]
    return StepMeasurement(troubles=troubles, details={"firmware": versions})


def _odd(values: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the cards whose value is not that of most, and that one."""
    usual = Counter(values.values()).most_common(1)[0][0]
    return [who for who, value in values.items() if value != usual], usual


def _memory_size(bed: TestBed, step: Step) -> StepMeasurement:
    sizes = {name_of(card): card.memory_total_mib for card in bed.cards}
    known = {who: float(mib) for who, mib in sizes.items() if mib is not None}
    if not known:
        raise NoFigure("skipped", message("accept.unread", what="memory"))
    return StepMeasurement(known, _peaks(bed, step))


def _rates(bed: TestBed, step: Step) -> StepMeasurement:
    """Return the figures of a torch test, with the peak of each card."""
    answers = tools.torch_answers(bed, step)
    details = {"answers": answers}
    late = [who for who, answer in answers.items() if answer.get("compiled_late")]
    if late:
        raise NoFigure("broken", message("accept.compiled", who=", ".join(late)), details)
    values = {who: float(answer["value"]) for who, answer in answers.items()}
    # the result of the same operation is the same on every sound card
    odd, _ = _odd({who: str(answer.get("digest")) for who, answer in answers.items()})
    troubles = [("fail", message("accept.differs", who=who)) for who in odd]
    return StepMeasurement(values, _peaks(bed, step), troubles, details)


def _peaks(bed: TestBed, step: Step) -> dict[str, float]:
    """Return the peak of each card, by the kind that the limits name."""
    found: dict[str, float | None] = {}
    product, kind = bed.product, step.limit.get("peak")
    for card in bed.cards:
        peak: float | None = card_files.link_peak(card) if kind == "link" else None
        if product is not None and kind == "clock":
            peak = _matrix_peak(bed, card, product.id, step.dtype)
        elif product is not None and kind == "memory":
            peak = product.bandwidth_gb_s
        elif product is not None and kind == "size":
            peak = product.memory_total_mib
        found[name_of(card)] = peak
    return {who: peak for who, peak in found.items() if peak is not None}


def _matrix_peak(bed: TestBed, card: Card, product: str, dtype: str) -> float | None:
    """Return the peak in TFLOPS at the card's own clock; None where it is not known."""
    row, files = facts()["operations"].get(product), bed.facts.files
    if row is None:
        return None
    least, most = (share * row["clock_mhz"] for share in facts()["clock_range"])
    clock = None if files is None else card_files.driver_number(files, card, "clk_max_freq_mhz")
    if clock is None or not least <= clock <= most:
        clock = row["clock_mhz"]
    return float(row[dtype] * clock / 1e6)


def _under_load(bed: TestBed, step: Step) -> StepMeasurement:
    """Measure the sustained matrix rate; then read maxima and throttling."""
    before = read_counters(bed.facts)
    found = _rates(bed, step)
    after = read_counters(bed.facts)
    troubles = [*found.troubles]
    maxima: dict[str, Mapping[str, float]] = {}
    for card in bed.cards:
        who, files = name_of(card), bed.facts.files
        highest = maxima[who] = {} if files is None else card_files.maxima(files, card)
        limit, source = highest.get("limit_c"), "temp1_crit"
        if limit is None:
            limit, source = temperature_hot_c(bed.product_id or None)
        if highest.get("temperature_c", 0) >= limit:
            shown = {"found": f"{highest['temperature_c']:.0f}", "limit": f"{limit:.0f}"}
            troubles.append(("warn", message("accept.hot", who=who, source=source, **shown)))
        for kind in ("thermal", "power"):
            counter = f"violation_{kind}"
            if after.get(who, {}).get(counter, 0) > before.get(who, {}).get(counter, 0):
                troubles.append(("warn", message("accept.throttled", who=who, kind=kind)))
    return replace(found, troubles=troubles, details={**found.details, "maxima": maxima})


def _memory_fill(bed: TestBed, step: Step) -> StepMeasurement:
    """Judge what was read back; the size has no limit."""
    found = _rates(bed, step)
    wrong = {who: each["wrong_values"] for who, each in found.details["answers"].items()}
    troubles = [
        ("fail", message("accept.wrong_values", who=who, count=count))
        for who, count in wrong.items()
        if count
    ]
    return StepMeasurement(troubles=troubles, details=found.details)


def pair_rounds(modules: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return all pairs in rounds, in which no card is twice."""
    # with an odd number one card rests in each round
    ring = [*modules, *[_NONE] * (len(modules) % 2)]
    rounds: list[list[tuple[int, ...]]] = []
    for _ in ring[1:]:
        facing = zip(ring[: len(ring) // 2], reversed(ring), strict=False)
        pairs = (tuple(sorted(pair)) for pair in facing)
        rounds.append([pair for pair in pairs if _NONE not in pair])
        # all but the first move on
        ring.insert(1, ring.pop())
    return rounds


def _groups(bed: TestBed, size: int) -> list[list[tuple[int, ...]]]:
    """Return the groups of ``size`` cards (0: all that are joined), in rounds."""
    assert bed.product is not None
    modules = [card.module for card in bed.cards if card.module is not None]
    joined = [group for group in bed.product.groups(modules) if len(group) > 1]
    if not size:
        return [list(joined)]
    if size == 2:
        return [pairs for group in joined for pairs in pair_rounds(group)]
    fours = [group[at : at + size] for group in joined for at in range(0, len(group), size)]
    # with four cards in a group this would be the step with all
    return [[four for four in fours if len(four) == size and len(joined[0]) > size]]


def _all_reduce(bed: TestBed, step: Step) -> StepMeasurement:
    """Return the rate of each group, whose ceiling is (n - 1) x that of a pair."""
    if bed.product is None:
        raise NoFigure("skipped", message("accept.product"))
    values, peaks = {}, {}
    for groups in filter(None, _groups(bed, step.group)):
        for group, rate in zip(groups, tools.all_reduce(bed, groups, step), strict=True):
            who = "-".join(map(str, group))
            values[who] = rate
            if bed.product.pair_gb_s is not None:
                peaks[who] = (len(group) - 1) * bed.product.pair_gb_s
    if not values:
        raise NoFigure("skipped", message("accept.no_group", size=step.group or 2))
    return StepMeasurement(values, peaks)


def _qual(bed: TestBed, step: Step) -> StepMeasurement:
    found = tools.qual(bed, step)
    failed = [who for who, good in found.items() if not good]
    troubles = [("fail", message("accept.qual_failed", who=who)) for who in failed]
    return StepMeasurement(troubles=troubles, details={"devices": len(found)})


def read_counters(now: DoctorFacts) -> dict[str, dict[str, int]]:
    """Return the counters of each card as they are now, as far as they can be read."""
    files, found = now.files, {}
    if files is None or not now.host.cards:
        return {}
    fresh = replace(now, host=load(None))
    for card in fresh.host.cards:
        violations = health_of(fresh, card).violations or {}
        found[name_of(card)] = {
            **card_files.counters(files, card),
            **{f"violation_{kind}": count for kind, count in violations.items()},
        }
    return found


def _events(bed: TestBed, step: Step) -> StepMeasurement:
    """Compare the counters with those before the first step."""
    now = read_counters(bed.facts)
    names = [name for name in map(name_of, bed.cards) if now.get(name)]
    if not names:
        raise NoFigure("skipped", message("accept.unread", what="counters"))
    troubles: list[Trouble] = []
    for who in names:
        for counter, count in now[who].items():
            risen = count - bed.counters.get(who, {}).get(counter, count)
            if risen > 0:
                note = message("accept.risen", who=who, counter=counter, count=risen)
                troubles.append(("fail" if counter in _FAULTS else "warn", note))
    return StepMeasurement(troubles=troubles, details={"before": bed.counters, "after": now})


MEASURES: Mapping[str, Measure] = {
    "checks": _checks,
    "firmware": _firmware,
    "memory_size": _memory_size,
    "rates": _rates,
    "memory_fill": _memory_fill,
    "under_load": _under_load,
    "all_reduce": _all_reduce,
    "qual": _qual,
    "served": served,
    "events": _events,
}
