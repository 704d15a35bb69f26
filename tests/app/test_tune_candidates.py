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
