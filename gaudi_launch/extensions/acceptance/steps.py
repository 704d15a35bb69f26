"""The steps of the acceptance test, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor import runner
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.extensions.acceptance import card_state, served, tools
from gaudi_launch.extensions.acceptance.card_state import name_of
from gaudi_launch.extensions.acceptance.judge import facts
from gaudi_launch.extensions.acceptance.records import NoFigure, StepMeasurement
from gaudi_launch.extensions.acceptance.tools import TestBed

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
    bad: dict[str, Message] = {}
    slow: dict[str, Message] = {}
    for each in findings:
        if each.status in ("fail", "warn"):
            note = message("accept.finding", check=each.id, message=each.message.render())
            (bad if each.status == "fail" else slow)[each.id] = note
    rows = {each.id: each.status for each in findings}
    return StepMeasurement({}, "", bad=bad, slow=slow, details={"findings": rows})


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
    bad = {
        who: message("accept.firmware", who=who, found=text or "-", expected=usual)
        for who, text in versions.items()
        if text != usual
    }
    return StepMeasurement({}, "", bad=bad, details={"firmware": versions})


def _memory_size(bed: TestBed, name: str) -> StepMeasurement:
    sizes = {name_of(card): card.memory_total_mib for card in bed.cards}
    known = {who: float(mib) for who, mib in sizes.items() if mib is not None}
    if not known:
        raise NoFigure("skipped", message("accept.unread", what="memory"))
    peaks = {}
    if bed.product is not None:
        peaks = dict.fromkeys(known, float(bed.product.memory_total_mib))
    return StepMeasurement(known, "MiB", peaks)


def _rates(
    bed: TestBed, name: str, unit: str, peak: Callable[[Card], float | None]
) -> StepMeasurement:
    """Return the figures of a torch test, with the peak of each card."""
    answers = tools.torch_answers(bed, name, "fp8" if name == "matrix_fp8" else "bf16")
    late = [who for who, answer in answers.items() if answer.get("compiled_late")]
    if late:
        why = message("accept.compiled", who=", ".join(late))
        raise NoFigure("broken", why, {"answers": answers})
    peaks = {name_of(card): peak(card) for card in bed.cards}
    known = {who: value for who, value in peaks.items() if value is not None}
    bad = _differing(answers)
    values = {who: float(answer["value"]) for who, answer in answers.items()}
    return StepMeasurement(values, unit, known, bad=bad, details={"answers": answers})


def _differing(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Message]:
    """Return the cards whose result of the same operation differs from that of most."""
    digests = Counter(answer["digest"] for answer in answers.values() if "digest" in answer)
    if len(digests) < 2:
        return {}
    usual = digests.most_common(1)[0][0]
    wrong = [who for who, answer in answers.items() if answer.get("digest") != usual]
    return {who: message("accept.differs", who=who) for who in wrong}


def _matrix(bed: TestBed, name: str) -> StepMeasurement:
    kind = "fp8" if name == "matrix_fp8" else "bf16"

    def peak(card: Card) -> float | None:
        if bed.product is None:
            return None
        return card_state.matrix_peak(bed.facts.files, card, bed.product, kind)

    return _rates(bed, name, "TFLOPS", peak)


def _under_load(bed: TestBed, name: str) -> StepMeasurement:
    """Measure the sustained matrix rate; then read maxima and throttling."""
    before = card_state.read_counters(bed.facts)
    found = _matrix(bed, name)
    after = card_state.read_counters(bed.facts)
    slow, details = dict(found.slow), {}
    for card in bed.cards:
        who = name_of(card)
        highest = {}
        if bed.facts.files is not None:
            highest = card_state.maxima(bed.facts.files, card)
        limit, source = card_state.hot_limit(card, bed.product_id, highest)
        details[who] = highest
        if highest.get("temperature_c", 0) >= limit:
            shown = {"found": f"{highest['temperature_c']:.0f}", "limit": f"{limit:.0f}"}
            slow[who] = message("accept.hot", who=who, source=source, **shown)
        for kind in ("thermal", "power"):
            counter = f"violation_{kind}"
            if after.get(who, {}).get(counter, 0) > before.get(who, {}).get(counter, 0):
                slow[f"{who} {kind}"] = message("accept.throttled", who=who, kind=kind)
    more = {**found.details, "maxima": details}
    return StepMeasurement(found.values, found.unit, found.peaks, found.bad, slow, more)


def _memory_rate(bed: TestBed, name: str) -> StepMeasurement:
    peak = bed.product.bandwidth_gb_s if bed.product is not None else None
    return _rates(bed, name, "GB/s", lambda card: peak)


def _host_to_card(bed: TestBed, name: str) -> StepMeasurement:
    return _rates(bed, name, "GB/s", card_state.link_peak)


def _compile(bed: TestBed, name: str) -> StepMeasurement:
    return _rates(bed, name, "s", lambda card: None)


def _memory_fill(bed: TestBed, name: str) -> StepMeasurement:
    found = _rates(bed, name, "GiB", lambda card: None)
    answers = found.details["answers"]
    wrong = {who: answer["wrong_values"] for who, answer in answers.items()}
    bad = {
        who: message("accept.wrong_values", who=who, count=count)
        for who, count in wrong.items()
        if count
    }
    # the size has no limit: all of it must be right
    return StepMeasurement({}, "", bad=bad, details=found.details)


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
    failed = {who: message("accept.qual_failed", who=who) for who, ok in found.items() if not ok}
    return StepMeasurement({}, "", bad=failed, details={"devices": len(found)})


def _events(bed: TestBed, name: str) -> StepMeasurement:
    """Compare the counters with those before the first step."""
    now = card_state.read_counters(bed.facts)
    bad: dict[str, Message] = {}
    slow: dict[str, Message] = {}
    read = 0
    for card in bed.cards:
        who = name_of(card)
        before = bed.counters.get(who, {})
        for counter, count in now.get(who, {}).items():
            read += 1
            risen = count - before.get(counter, count)
            if risen <= 0:
                continue
            note = message("accept.risen", who=who, counter=counter, count=risen)
            (bad if counter in card_state.FAULTS else slow)[f"{who} {counter}"] = note
    if not read:
        raise NoFigure("skipped", message("accept.unread", what="counters"))
    return StepMeasurement(
        {}, "", bad=bad, slow=slow, details={"before": bed.counters, "after": now}
    )


_CARDS = ("cards",)
_LINKS = ("cards", "several")
# a step on the CPU too: torch, and a served model
_ANY: tuple[str, ...] = ()
STEPS: tuple[Step, ...] = (
    Step("checks", 1, _CARDS, _checks),
    Step("firmware", 1, _CARDS, _firmware),
    Step("memory_size", 1, _CARDS, _memory_size),
    Step("memory_rate", 1, _ANY, _memory_rate),
    Step("matrix_bf16", 1, _ANY, _matrix),
    Step("host_to_card", 1, _ANY, _host_to_card),
    Step("all_reduce", 1, _LINKS, _all_reduce),
    Step("matrix_fp8", 2, _ANY, _matrix),
    Step("memory_fill", 2, _ANY, _memory_fill),
    Step("compile", 2, _ANY, _compile),
    Step("all_reduce_pairs", 2, _LINKS, _all_reduce),
    Step("all_reduce_fours", 2, _LINKS, _all_reduce),
    Step("sustained", 2, _ANY, _under_load),
    Step("qual_pcie", 2, ("cards", "bare"), _qual),
    Step("qual_links", 2, _LINKS, _qual),
    Step("served_small", 2, _ANY, served.small),
    Step("qual_functional", 3, _CARDS, _qual),
    Step("qual_hbm", 3, _CARDS, _qual),
    Step("qual_hbm_data", 3, _CARDS, _qual),
    Step("heat", 3, _ANY, _under_load),
    Step("served_model", 3, ("model",), served.chosen),
    Step("events", 1, _CARDS, _events),
)
