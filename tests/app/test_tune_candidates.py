"""The plans that tune compares: variations in their order, each plan once."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import prepare, recommend, tune_candidates
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.tune_candidates import TuneCandidate, candidates
from gaudi_launch.errors import ExitCode, LaunchError

OPTIONS = LaunchOptions(model="m", extra=("--max-num-seqs", "9", "--seed", "1"))
BASE = LaunchOptions(model="m", extra=("--seed", "1"))


def speed(cards: int, score: float) -> Any:
    return SimpleNamespace(cards=cards, score=score)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prepare an engine that serves 64 requests and 2048 tokens a step on 2 of 8 cards."""
    limits = SimpleNamespace(max_num_seqs=64, max_num_batched_tokens=2048)
    engine = SimpleNamespace(needs_cards=False, limits=lambda *words: limits)
    made = SimpleNamespace(
        engine=engine, request=SimpleNamespace(chosen_cards=2), host=None, model=None
    )
    monkeypatch.setattr(prepare, "prepare", lambda options: made)
    monkeypatch.setattr(
        "gaudi_launch.planning.balanced_cards.speeds_of",
        lambda *words: [speed(1, 5.0), speed(2, 9.0), speed(4, 7.0), speed(8, 7.0)],
    )
    return made


def changes(options: LaunchOptions, clients: int = 16) -> list[tuple[str, dict[str, Any]]]:
    """Return the variations with what each adds to the first."""
    found = list(tune_candidates._variations(options, clients))
    base = vars(found[0][1])
    return [
        (name, {key: value for key, value in vars(one).items() if value != base[key]})
        for name, one in found
    ]


def test_cards_then_requests_then_tokens_are_varied(prepared: Any) -> None:
    assert next(tune_candidates._variations(OPTIONS, 16)) == ("default", BASE)
    assert changes(OPTIONS) == [
        ("default", {}),
        # the next best number of cards: fewer ones of equal speed
        ("-n 4", {"cards": "4"}),
        ("-b 16", {"max_num_seqs": "16"}),
        ("-b 8", {"max_num_seqs": "8"}),
        ("-b 128", {"max_num_seqs": "128"}),
        ("-b 32", {"max_num_seqs": "32"}),
        ("-t 4096", {"max_num_batched_tokens": "4096"}),
        ("-t 8192", {"max_num_batched_tokens": "8192"}),
    ]


def test_what_is_given_is_not_varied(prepared: Any) -> None:
    prepared.request.chosen_cards = None
    given = LaunchOptions(model="m", max_num_seqs="4", max_num_batched_tokens="1024")
    assert changes(given) == [("default", {})]


@pytest.mark.parametrize(
    ("default", "clients", "batches"),
    [(64, 16, [16, 8, 128, 32]), (64, 17, [32, 16, 128]), (1, 1, [2]), (4, 1, [1, 8, 2])],
)
def test_numbers_of_requests_are_near_the_clients_and_the_default(
    default: int, clients: int, batches: list[int]
) -> None:
    assert tune_candidates._batches(default, clients) == batches


def plan(cards: int, hash: str) -> Any:
    placement = SimpleNamespace(modules=tuple(range(cards)))
    return SimpleNamespace(placement=placement, hash=hash)


def test_each_plan_is_a_candidate_once_and_the_given_one_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = {"given": plan(2, "h1"), "default": plan(0, "h2"), "same": plan(4, "h1")}
    words = {name: LaunchOptions(model=name) for name in (*plans, "none", "fourth")}
    plans["fourth"] = plan(1, "h4")

    def made(options: LaunchOptions) -> Any:
        if options.model not in plans:
            raise LaunchError("services.drain", ExitCode.MACHINE, found=1)
        return plans[options.model], None

    def variations(options: LaunchOptions, clients: int) -> Iterator[tuple[str, LaunchOptions]]:
        assert (options, clients) == (words["given"], 16)
        yield from ((name, words[name]) for name in ("default", "same", "none", "fourth"))

    monkeypatch.setattr(prepare, "plan", made)
    monkeypatch.setattr(tune_candidates, "_variations", variations)
    monkeypatch.setattr("gaudi_launch.app.saved_plan.hash_of", lambda plan: plan.hash)
    expected = (
        TuneCandidate("given", words["given"], 2, "h1"),
        # one without cards counts as one
        TuneCandidate("default", words["default"], 1, "h2"),
        TuneCandidate("fourth", words["fourth"], 1, "h4"),
    )
    assert candidates(words["given"], clients=16, most=6) == expected
    assert candidates(words["given"], clients=16, most=2) == expected[:2]
    with pytest.raises(LaunchError):
        candidates(words["none"], clients=16, most=2)


@pytest.mark.parametrize(
    ("given", "quantization", "dtypes"),
    [
        ("", None, ["bfloat16"] * 3),
        ("bf16", None, ["bfloat16"] * 3),
        ("fp8", None, ["fp8"]),
        ("", "fp8", ["fp8"]),
    ],
)
def test_three_recommended_configurations_of_the_same_weights_are_tried(
    given: str, quantization: str | None, dtypes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    kinds = ["bfloat16", "fp8", "bfloat16", "bfloat16", "bfloat16"]
    trials = [SimpleNamespace(candidate=SimpleNamespace(dtype=kind)) for kind in kinds]
    model = SimpleNamespace(quantization=quantization)
    search = SimpleNamespace(model=model)
    found = SimpleNamespace(
        case=SimpleNamespace(search=search), found=SimpleNamespace(trials=trials)
    )

    def read(options: LaunchOptions, wanted: recommend.RecommendOptions) -> str:
        asked.append((options, wanted))
        return "case"

    def launch(case: Any, candidate: Any) -> LaunchOptions:
        return LaunchOptions(cards="2", max_num_seqs="8", dtype=candidate.dtype)

    monkeypatch.setattr(recommend, "read", read)
    monkeypatch.setattr(recommend, "solve", lambda case: found)
    monkeypatch.setattr(recommend, "launch_options", launch)
    options = LaunchOptions(model="m", dtype=given or None)
    shown = list(tune_candidates._recommended(options, 16))
    assert [(name, one.dtype) for name, one in shown] == [("-n 2 -b 8", kind) for kind in dtypes]
    assert asked == [(options, recommend.RecommendOptions(goal="balanced", concurrency="16"))]


def test_without_a_recommendation_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*words: Any) -> None:
        raise LaunchError("services.drain", ExitCode.MACHINE, found=1)

    monkeypatch.setattr(recommend, "read", read)
    assert list(tune_candidates._recommended(OPTIONS, 16)) == []
