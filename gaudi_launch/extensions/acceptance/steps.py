"""The steps of the acceptance test, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor import runner
from gaudi_launch.core.host import card_files
from gaudi_launch.extensions.acceptance import card_state, tools
from gaudi_launch.extensions.acceptance.card_state import name_of
from gaudi_launch.extensions.acceptance.judge import facts
from gaudi_launch.extensions.acceptance.records import NoFigure, StepMeasurement
from gaudi_launch.extensions.acceptance.served import served
from gaudi_launch.extensions.acceptance.tools import TestBed

Trouble = tuple[str, Message]
Measure = Callable[[TestBed, str], StepMeasurement]


@dataclass(frozen=True)
class Step:
    """One step: the lowest level that has it, what it needs, and how it is measured.

    ``needs``: ``cards`` (also measured on the CPU without them), ``bare`` (no virtual machine),
    ``several`` (two cards at least), ``model`` (a chosen one).
    """

    name: str
    level: int
    needs: tuple[str, ...]
    measure: Measure

    @property
    def title(self) -> Message:
        return Message(f"accept.step.{self.name}")


def _checks(bed: TestBed, name: str) -> StepMeasurement:
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


def _firmware(bed: TestBed, name: str) -> StepMeasurement:
    """Compare the firmware of the cards: all must be equal."""
    health = bed.facts.health
    versions: dict[str, str] = {}
    for card in bed.facts.host.cards:
        known = health.get(card.index or 0)
        spi = known.spi if known is not None else None
        found = [text for text in (spi, known.fit if known else None, card.firmware) if text]
        versions[name_of(card)] = " / ".join(found)
    if not any(versions.values()):
        raise NoFigure("skipped", message("accept.unread", what="firmware"))
    usual = Counter(versions.values()).most_common(1)[0][0]
    troubles = [
        ("fail", message("accept.firmware", who=who, found=text or "-", expected=usual))
        for who, text in versions.items()
        if text != usual
    ]
    return StepMeasurement(troubles=troubles, details={"firmware": versions})


def _memory_size(bed: TestBed, name: str) -> StepMeasurement:
    sizes = {name_of(card): card.memory_total_mib for card in bed.cards}
    known = {who: float(mib) for who, mib in sizes.items() if mib is not None}
    if not known:
        raise NoFigure("skipped", message("accept.unread", what="memory"))
    return StepMeasurement(known, "MiB", _peaks(bed, name))


def _rates(bed: TestBed, name: str) -> StepMeasurement:
    """Return the figures of a torch test, with the peak of each card."""
    answers = tools.torch_answers(bed, name)
    late = [who for who, answer in answers.items() if answer.get("compiled_late")]
    if late:
        why = message("accept.compiled", who=", ".join(late))
        raise NoFigure("broken", why, {"answers": answers})
    values = {who: float(answer["value"]) for who, answer in answers.items()}
    return StepMeasurement(
        values,
        facts()["steps"][name]["unit"],
        _peaks(bed, name),
        troubles=_differing(answers),
        details={"answers": answers},
    )


def _peaks(bed: TestBed, name: str) -> dict[str, float]:
    """Return the peak of each card, by the kind that the limits name."""
    kind = facts()["limits"].get(name, {}).get("peak")
    found: dict[str, float | None] = {}
    for card in bed.cards:
        peak = card_files.link_peak(card) if kind == "link" else None
        if bed.product is not None and kind == "clock":
            dtype = facts()["steps"][name]["dtype"]
            peak = card_state.matrix_peak(bed.facts.files, card, bed.product, dtype)
        elif bed.product is not None and kind == "memory":
            peak = bed.product.bandwidth_gb_s
        elif bed.product is not None and kind == "size":
            peak = bed.product.memory_total_mib
        found[name_of(card)] = peak
    return {who: peak for who, peak in found.items() if peak is not None}


def _differing(answers: Mapping[str, Mapping[str, Any]]) -> list[Trouble]:
    """Return the cards whose result of the same operation differs from that of most."""
    digests = Counter(answer.get("digest") for answer in answers.values())
    usual = digests.most_common(1)[0][0]
    wrong = [who for who, answer in answers.items() if answer.get("digest") != usual]
    return [("fail", message("accept.differs", who=who)) for who in wrong]


def _under_load(bed: TestBed, name: str) -> StepMeasurement:
    """Measure the sustained matrix rate; then read maxima and throttling."""
    before = card_state.read_counters(bed.facts)
    found = _rates(bed, name)
    after = card_state.read_counters(bed.facts)
    troubles, details = [*found.troubles], {}
    for card in bed.cards:
        who = name_of(card)
        highest = {}
        if bed.facts.files is not None:
            highest = card_files.maxima(bed.facts.files, card)
        limit, source = card_state.hot_limit(card, bed.product_id, highest)
        details[who] = highest
        if highest.get("temperature_c", 0) >= limit:
            shown = {"found": f"{highest['temperature_c']:.0f}", "limit": f"{limit:.0f}"}
            troubles.append(("warn", message("accept.hot", who=who, source=source, **shown)))
        for kind in ("thermal", "power"):
            counter = f"violation_{kind}"
            if after.get(who, {}).get(counter, 0) > before.get(who, {}).get(counter, 0):
                troubles.append(("warn", message("accept.throttled", who=who, kind=kind)))
    return replace(found, troubles=troubles, details={**found.details, "maxima": details})


def _memory_fill(bed: TestBed, name: str) -> StepMeasurement:
    """Judge what was read back; the size has no limit."""
    found = _rates(bed, name)
    wrong = {who: each["wrong_values"] for who, each in found.details["answers"].items()}
    troubles = [
        ("fail", message("accept.wrong_values", who=who, count=count))
        for who, count in wrong.items()
        if count
    ]
    return StepMeasurement(troubles=troubles, details=found.details)


def pair_rounds(modules: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return all pairs in rounds, in which no card is twice."""
    left, rounds = list(combinations(sorted(modules), 2)), []
    while left:
        used: set[int] = set()
        taken: list[tuple[int, ...]] = []
        for pair in left:
            if used.isdisjoint(pair):
                taken.append(pair)
                used.update(pair)
        left = [pair for pair in left if pair not in taken]
        rounds.append(taken)
    return rounds


def _groups(bed: TestBed, size: int) -> list[list[tuple[int, ...]]]:
    """Return the groups of ``size`` cards (0: all that are joined), in rounds."""
    assert bed.product is not None
    modules = [card.module for card in bed.cards if card.module is not None]
    joined = [group for group in bed.product.groups(modules) if len(group) > 1]
    if not size:
        return [list(joined)]
    if size == 2:
        rounds: list[list[tuple[int, ...]]] = []
        for group in joined:
            rounds += pair_rounds(group)
        return rounds
    fours = [group[at : at + size] for group in joined for at in range(0, len(group), size)]
    # with four cards in a group this would be the step with all
    return [[four for four in fours if len(four) == size and len(joined[0]) > size]]


def _all_reduce(bed: TestBed, name: str) -> StepMeasurement:
    """Return the rate of each group, whose ceiling is (n - 1) x that of a pair."""
    if bed.product is None:
        raise NoFigure("skipped", message("accept.product"))
    values, peaks = {}, {}
    size = facts()["steps"][name]["group"]
    for groups in filter(None, _groups(bed, size)):
        for group, rate in zip(groups, tools.all_reduce(bed, groups, name), strict=True):
            who = "-".join(map(str, group))
            values[who] = rate
            if bed.product.pair_gb_s is not None:
                peaks[who] = (len(group) - 1) * bed.product.pair_gb_s
    if not values:
        raise NoFigure("skipped", message("accept.no_group", size=size or 2))
    return StepMeasurement(values, "GB/s", peaks)


def _qual(bed: TestBed, name: str) -> StepMeasurement:
    found = tools.qual(bed, name)
    failed = [who for who, good in found.items() if not good]
    troubles = [("fail", message("accept.qual_failed", who=who)) for who in failed]
    return StepMeasurement(troubles=troubles, details={"devices": len(found)})


def _events(bed: TestBed, name: str) -> StepMeasurement:
    """Compare the counters with those before the first step."""
    now = card_state.read_counters(bed.facts)
    troubles: list[Trouble] = []
    counters = [
        (who, *pair) for who in map(name_of, bed.cards) for pair in now.get(who, {}).items()
    ]
    if not counters:
        raise NoFigure("skipped", message("accept.unread", what="counters"))
    for who, counter, count in counters:
        risen = count - bed.counters.get(who, {}).get(counter, count)
        if risen > 0:
            status = "fail" if counter in card_state.FAULTS else "warn"
            note = message("accept.risen", who=who, counter=counter, count=risen)
            troubles.append((status, note))
    return StepMeasurement(troubles=troubles, details={"before": bed.counters, "after": now})


_CARDS = ("cards",)
_LINKS = ("cards", "several")
# a step on the CPU too: torch, and a served model
_ANY: tuple[str, ...] = ()
STEPS: tuple[Step, ...] = (
    Step("checks", 1, _CARDS, _checks),
    Step("firmware", 1, _CARDS, _firmware),
    Step("memory_size", 1, _CARDS, _memory_size),
    Step("memory_rate", 1, _ANY, _rates),
    Step("matrix_bf16", 1, _ANY, _rates),
    Step("host_to_card", 1, _ANY, _rates),
    Step("all_reduce", 1, _LINKS, _all_reduce),
    Step("matrix_fp8", 2, _ANY, _rates),
    Step("memory_fill", 2, _ANY, _memory_fill),
    Step("compile", 2, _ANY, _rates),
    Step("all_reduce_pairs", 2, _LINKS, _all_reduce),
    Step("all_reduce_fours", 2, _LINKS, _all_reduce),
    Step("sustained", 2, _ANY, _under_load),
    Step("qual_pcie", 2, ("cards", "bare"), _qual),
    Step("qual_links", 2, _LINKS, _qual),
    Step("served_small", 2, _ANY, served),
    Step("qual_functional", 3, _CARDS, _qual),
    Step("qual_hbm", 3, _CARDS, _qual),
    Step("qual_hbm_data", 3, _CARDS, _qual),
    Step("heat", 3, _ANY, _under_load),
    Step("served_model", 3, ("model",), served),
    Step("events", 1, _CARDS, _events),
)
