"""Cards as they are sampled each second: one call at most, and unknown where nothing is given."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.files import Files
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.shared_hl_smi import TimedOutput
from gaudi_launch.core.host.snapshot import to_json
from gaudi_launch.extensions.watch import card_sampler
from gaudi_launch.extensions.watch.card_sampler import CardSampler, SimulatedSource
from gaudi_launch.extensions.watch.sample import CardSample
from tests.support.machines import use, write_stub
from tests.support.waiting import GENEROUS


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A source that keeps the calls of each second, and may fail or answer with another text."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.inner = SimulatedSource(name, clock)
        self.calls: list[str] = []
        self.without: str = ""
        self.fails = False

    def files(self) -> Files:
        return self.inner.files()

    def latest(self, arguments: Sequence[str], most_age: float) -> TimedOutput | None:
        self.calls.append(" ".join(arguments))
        found = self.inner.latest(arguments, most_age)
        assert found is not None
        if self.fails:
            return TimedOutput(HlSmiOutput(problem="'hl-smi' gave no answer within 5 s"), found.at)
        return TimedOutput(HlSmiOutput(re.sub(self.without, "N/A", found.output.text)), found.at)

    @property
    def has_hl_smi(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sampler_of(
    name: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, without: str = r"(?!)"
) -> tuple[CardSampler, Watched]:
    source = Watched(name, clock)
    source.without = without
    monkeypatch.setattr(card_sampler, "source_of", lambda machine, wait_seconds: source)
    return CardSampler(None, clock), source


def after(seconds: int, sampler: CardSampler, clock: Clock) -> dict[int | None, CardSample]:
    """Sample each second for this time; return the last cards by module."""
    cards: tuple[CardSample, ...] = ()
    for _ in range(seconds):
        cards, _ = sampler.sample()
        clock.now += 1
    return {card.module: card for card in cards}


def test_a_card_that_disappears_is_shown_as_absent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler, _ = sampler_of("hls2+lost=5", clock, monkeypatch)
    assert after(15, sampler, clock)[5].present is True
    lost = after(20, sampler, clock)[5]
    assert (lost.present, lost.power_w, lost.temperature_c, lost.throttled) == (
        False,
        None,
        None,
        None,
    )
    assert after(300, sampler, clock)[5].present is True


def test_the_reasons_whose_counters_grew_are_named(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler, _ = sampler_of("hls2", clock, monkeypatch)
    after(3, sampler, clock)
    head = "index, stats.violation.thermal, stats.violation.power\n"
    for row in ("4, 5, 7", "4, 5, 9", "4, N/A, N/A", "x, 1, 1"):
        sampler._count(HlSmiOutput(f"{head}{row}\n"))
    sampler._count(HlSmiOutput(problem="it failed"))
    (card,) = [card for card in sampler.sample()[0] if card.index == 4]
    assert (card.throttled, card.throttled_by) == (True, ("power",))
    sampler._count(HlSmiOutput(f"{head}4, 5, 9\n"))
    (card,) = [card for card in sampler.sample()[0] if card.index == 4]
    assert (card.throttled, card.throttled_by) == (False, ())


def test_a_table_that_is_too_old_says_how_old_it_is(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler, source = sampler_of("hls2", clock, monkeypatch)
    after(1, sampler, clock)
    known = source.latest((), 1.0)
    monkeypatch.setattr(source, "latest", lambda arguments, most_age: known)
    clock.now += 11
    cards, problem = sampler.sample()
    assert problem == text("watch.hl_smi_late", seconds="12")
    assert {card.power_w for card in cards} == {None}


def test_a_snapshot_has_the_values_of_its_moment(clock: Clock, tmp_path: Path) -> None:
    import json

    path = tmp_path / "host.json"
    path.write_text(json.dumps(to_json(simulated.make("hls2+busy=1"))))
    cards, problem = CardSampler(str(path), clock).sample()
    busy = next(card for card in cards if card.module == 1)
    assert (problem, busy.power_w, busy.utilization_percent, busy.group) == (None, 420, 80, 0)
    assert "api_server" in str(busy.owner)


def test_an_hl_smi_that_takes_long_delays_no_sample(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    simulated.write_tree("hls2", tmp_path / "root")
    table = simulated.build("hls2").ask([]).text
    go = tmp_path / "go"
    wait = f"import os\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    write_stub(tmp_path / "bin", {}, f"{wait}\nprint({table!r})")
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    sampler = CardSampler(wait_seconds=0.05)
    cards, problem = sampler.sample()
    assert (len(cards), cards[0].power_w, problem) == (8, None, "hl-smi has not answered yet")
    go.touch()
    deadline = time.monotonic() + GENEROUS
    while problem is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        cards, problem = sampler.sample()
    assert (len(cards), cards[0].power_w) == (8, 88)
