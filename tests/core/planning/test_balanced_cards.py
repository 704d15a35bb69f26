"""The number of cards that is taken where the user names none."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import balanced_cards
from gaudi_launch.core.planning.balanced_cards import CountedSpeed
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.memory import MemoryPlan
from gaudi_launch.core.planning.request import Request
from tests.support.cli import document, reading

pytestmark = pytest.mark.usefixtures("plain_english")

LARGE, SMALL = "Qwen/Qwen2-72B-Instruct", "Qwen/Qwen3-8B"
MACHINE = ("--machine", "simulated:hls2")
ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi", "tgi")


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return reading(capsys, "plan", *MACHINE, *words)


# on fewer, each token of 128 clients of the large model takes longer than the goal's 100 ms
@pytest.mark.parametrize(
    ("model", "words", "cards"),
    [
        *((LARGE, f"--engine {engine}", 8) for engine in ENGINES),
        *((SMALL, f"--engine {engine}", 1) for engine in ENGINES),
        (LARGE, "--engine vllm-gaudi -b 8", 2),
        (LARGE, "--engine vllm-gaudi -d fp8", 4),
        (LARGE, "--engine ray-serve --replicas 2", 4),
        # what the user chooses stays
        (LARGE, "--engine vllm-fork@1.21 -n 4", 4),
        (LARGE, "--engine vllm-fork@1.21 -m 0,1", 2),
        (LARGE, "--engine vllm-fork@1.21 -- --tensor-parallel-size 4", 4),
        (LARGE, "--engine vllm-fork@1.21 --tuning reference", 1),
        (SMALL, "--engine vllm-fork@1.21 --tuning reference", 1),
    ],
)
def test_the_cards_that_are_taken(
    model: str, words: str, cards: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(capsys, model, *words.split())["modules"] == [*range(cards)]


def test_a_replica_of_ray_serve_gets_the_fewest_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, LARGE, "--engine", "ray-serve")["modules"] == [0, 1]
    # with one card less it is refused
    code, shown = document(capsys, "plan", LARGE, "--engine", "ray-serve", "-n", "1", *MACHINE)
    assert (code, shown["error"]["id"]) == (3, "fit.plan_refused")


def test_only_free_cards_are_chosen_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "2,3,4,5,6")
    found = plan(capsys, LARGE, "--engine", "vllm-gaudi")
    assert found["modules"] == [2, 3, 4, 5]


def test_the_plan_is_that_of_the_same_number_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = (LARGE, "--engine", "vllm-fork@1.21")
    chosen, given = plan(capsys, *words), plan(capsys, *words, "-n", "8")
    for part in ("env", "argv", "buckets", "memory", "url", "warnings"):
        assert chosen[part] == given[part]
    sources = {
        name: [
            each["source"] for each in found["settings"] if each["name"] == "--tensor-parallel-size"
        ]
        for name, found in (("chosen", chosen), ("given", given))
    }
    assert sources == {"chosen": ["computed"], "given": ["flag"]}


def test_the_number_is_within_the_modules_that_the_environment_allows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "6,7")
    assert plan(capsys, LARGE, "--engine", "vllm-gaudi")["modules"] == [6, 7]
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "6")
    code, shown = document(capsys, "plan", LARGE, "--engine", "vllm-gaudi", *MACHINE)
    assert (code, shown["error"]["id"]) == (3, "fit.plan_refused")


def test_sizes_that_are_not_known_choose_no_cards(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("acme/Never-Heard-Of", "--engine", "vllm-fork@1.21")
    code, shown = document(capsys, "plan", *words, *MACHINE)
    assert (code, shown["error"]["id"]) == (5, "models.sizes_unknown")
    found = plan(capsys, *words, "-n", "2")
    assert (found["modules"], found["verdict"]) == ([0, 1], "to do")
    assert "plan.memory_unchecked" in {warning["id"] for warning in found["warnings"]}


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({1: (True, True), 2: (True, False)}, 2),
        ({1: (False, False), 2: (True, True), 4: (True, True)}, 2),
        ({1: (False, False), 2: (False, False), 4: (False, False), 8: (False, False)}, None),
        ({2: (True, False)}, 2),
        ({1: (None, False), 2: (True, False)}, None),
    ],
)
def test_a_number_that_is_tight_is_the_second_choice(
    memory: dict[int, tuple[bool | None, bool]],
    expected: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``memory``: for each number that can be planned, whether it fits, and whether it is tight."""

    def plan_of(request: Request, *_: object) -> MemoryPlan | None:
        found = memory.get(request.chosen_cards or 0)
        if found is None:
            return None
        return MemoryPlan(fits=found[0], tight=message("fit.tight") if found[1] else None)

    monkeypatch.setattr(balanced_cards, "_memory", plan_of)
    engine = find("vllm-gaudi", None, None)
    sized = Model(path="m", name="m", layers=2, kv_heads=1, head_dim=8, parameters=9)
    request = balanced_cards.with_balanced_cards(Request(model="m"), Host(), sized, engine)
    assert request.chosen_cards == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((LARGE,), r"balanced: 4 cards would fit, with 0\.[56]\d? times the tokens/s \(-n\)"),
        (
            (LARGE, "-d", "fp8"),
            r"balanced: 2 cards would fit, with 0\.[56]\d? times the tokens/s; 8 give 1\.",
        ),
        ((SMALL,), r"balanced, and the fewest that fit; 0\.9\d? times the tokens/s with 2 cards"),
    ],
)
def test_the_screen_states_what_else_was_possible(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    front = ["plan", *words, "--engine", "vllm-gaudi", *MACHINE]
    assert run(front) == 0
    assert len(re.findall(expected, " ".join(capsys.readouterr().out.split()))) == 1
    assert run([*front, "-n", "4"]) == 0
    assert "balanced" not in capsys.readouterr().out


def test_the_best_counts_tokens_per_card_and_waiting_users() -> None:
    """Twice the tokens on twice the cards are equal, unless one makes users wait."""
    counted = ((1, 100.0, 40.0), (2, 150.0, 75.0), (4, 300.0, 75.0))
    assert balanced_cards._in_order([CountedSpeed(*each) for each in counted]) == [2, 4, 1, 8]


def test_warm_up_is_planned_for_the_same_cards(capsys: pytest.CaptureFixture[str]) -> None:
    words = (LARGE, "--engine", "vllm-fork@1.21", *MACHINE)
    (planned,) = [each for each in reading(capsys, "warmup", *words)["plans"] if each["chosen"]]
    assert planned["decode"] == plan(capsys, *words[:3])["buckets"]["decode"]


@pytest.mark.parametrize("words", [("warmup", "--all"), ("render", "script")])
def test_warm_up_and_files_state_the_choice_too(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    front = [*words, LARGE, "--engine", "vllm-fork@1.21", *MACHINE]
    assert run(front) == 0
    shown = capsys.readouterr()
    assert " ".join((shown.out + shown.err).split()).count("balanced: 4 cards would fit") == 1
    assert run([*front, "-n", "8"]) == 0
    shown = capsys.readouterr()
    assert "balanced" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("tokens", "count", "expected"),
    [
        ({}, 2, message("placement.fewest", cards=2)),
        ({2: 100.0}, 2, message("placement.fewest", cards=2)),
        ({1: 100.0, 2: 150.0}, 4, message("placement.fewest", cards=4)),
        (
            {1: 100.0, 2: 200.0, 4: 300.0, 8: 400.0},
            4,
            message("placement.balanced", cards=4, fewer=2, less="0.67", more=8, gain="1.3"),
        ),
        ({1: 100.0, 2: 200.0}, 2, message("placement.balanced_most", cards=2, fewer=1, less="0.5")),
        (
            {1: 100.0, 2: 150.0, 8: 400.0},
            1,
            message("placement.balanced_fewest", cards=1, more=2, gain="1.5"),
        ),
    ],
)
def test_the_reason_of_a_number_compares_it_with_its_neighbours(
    tokens: dict[int, float], count: int, expected: Message
) -> None:
    speeds = [CountedSpeed(cards, each, 1.0) for cards, each in tokens.items()]
    assert balanced_cards._because(count, speeds) == expected


def test_each_number_that_fits_and_divides_the_heads_has_a_speed() -> None:
    engine, host = find("vllm-gaudi"), make("hls2")
    model = known_model(SMALL, must_exist=False)
    speeds = balanced_cards.speeds_of(Request(SMALL), host, model, engine)
    assert [each.cards for each in speeds] == [1, 2, 4, 8]
    # a small model gains little from more cards: two all-reduces of each layer
    assert speeds[3].tokens > speeds[2].tokens > 1.05 * speeds[0].tokens
    assert all(0 < each.score <= each.tokens / each.cards for each in speeds)
    busy, odd = make("hls2+busy=0,1,2,3,4"), replace(model, heads=6, kv_heads=6)
    for where, which in ((busy, model), (host, odd)):
        few = balanced_cards.speeds_of(Request(SMALL), where, which, engine)
        assert [each.cards for each in few] == [1, 2]
    large = known_model(LARGE, must_exist=False)
    assert balanced_cards.speeds_of(Request(LARGE), host, large, engine)[0].cards == 2
    assert balanced_cards.speeds_of(Request(SMALL), host, model, find("ray-serve")) == ()
    unknown = Model("m", "m")
    assert balanced_cards.speeds_of(Request("m"), host, unknown, engine) == ()


@pytest.mark.parametrize(
    ("engine", "wishes", "chosen"),
    [
        ("vllm-gaudi", {}, 1),
        ("vllm-gaudi", {"tuning": "reference"}, None),
        ("vllm-gaudi", {"modules": (1,)}, None),
        ("vllm-gaudi", {"cards": 2}, None),
        ("vllm-gaudi", {"extra": ("-tp", "2")}, None),
        ("tgi", {"extra": ("--num-shard", "2")}, None),
        ("tgi", {"extra": ("--sharded", "true")}, None),
        ("cpu", {}, None),
    ],
)
def test_a_number_is_chosen_only_where_it_is_left_to_us(
    engine: str, wishes: dict[str, Any], chosen: int | None
) -> None:
    request = Request(SMALL, **wishes)
    model = known_model(SMALL, must_exist=False)
    found = balanced_cards.with_balanced_cards(request, make("hls2"), model, find(engine))
    assert found.chosen_cards == chosen
    if chosen is None:
        assert found is request
    else:
        assert found.chosen is not None and found.chosen[1] is not None
