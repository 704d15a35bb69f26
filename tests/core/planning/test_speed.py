"""The speed of a plan: its load, and what the step times are asked for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning import speed
from gaudi_launch.core.planning.engine import Context, Limits
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import setup_in, static_in, step_time_in
from tests.support.vllm_gaudi_plans import HLS2, LLAMA

LIMITS = Limits(1, 8192, 1, 8192, 8192, 4096, 64, 1)
GAUDI = find("vllm-gaudi")


def context(limits: Limits = LIMITS, host: Host = HLS2, cards: int = 2, **words: Any) -> Context:
    placement = Placement(tuple(range(cards)))
    return Context(Request(model="/m", **words), host, LLAMA, placement, limits)


def asked(monkeypatch: pytest.MonkeyPatch, given: Context, engine: Any = GAUDI) -> tuple[Any, ...]:
    calls: list[tuple[Any, ...]] = []

    def step_time(*words: Any) -> Any:
        calls.append(words)
        return SimpleNamespace(cost="cost")

    monkeypatch.setattr(speed, "step_time", step_time)
    found: Any = step_time_in(given, engine)
    assert found == "cost"
    return calls[0]


def test_without_cards_products_or_sizes_there_is_no_setup() -> None:
    for given in (
        context(cards=0),
        context(host=Host()),
        replace(context(), model=replace(LLAMA, layers=None)),
        replace(context(), model=replace(LLAMA, architecture="BertModel")),
    ):
        assert setup_in(given, GAUDI, (), 700) is None
        assert static_in(given, GAUDI) is None
