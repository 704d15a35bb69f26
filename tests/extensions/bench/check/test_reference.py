"""Logprobs of a server against those of transformers; the real one is in scripts/acceptance."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench.check import reference
from tests.support.scripted_client import ScriptedClient


@pytest.mark.parametrize("ids", [True, False])
def test_each_prompt_is_sent_as_token_ids_and_the_long_ones_twice(ids: bool) -> None:
    sent: list[Any] = []

    def answer(path: str, question: Any) -> tuple[int, Any]:
        sent.append(question["prompt"])
        name = "token_id:7" if ids else "the"
        logprobs = {"tokens": [name], "token_logprobs": [-0.5]}
        return 200, {"choices": [{"text": "", "logprobs": logprobs}]}

    rows = asyncio.run(reference.answers(ScriptedClient(answer), "m"))
    prompts = reference.prompts()
    assert [len(each) for each in prompts] == [24] * 6 + [300] * 4 and prompts[6:8] == prompts[8:]
    wanted = [{"prompt": each, "answer": [7], "logprobs": [-0.5]} for each in prompts]
    assert (rows, sent) == ((wanted, prompts) if ids else ([], prompts[:1]))


NAN = float("nan")


@pytest.mark.parametrize(
    ("own", "dtype", "mean", "bad"),
    [
        ([[-1.0, -2.0]], "float32", 0.0, False),
        ([[-1.0, -2.1]], "float32", 0.05, True),
        ([[-1.0, -2.1]], "fp8", 0.05, False),
        ([[-1.0, -2.3]], "fp8", 0.15, True),
        ([[-1.0, None]], "bfloat16", NAN, True),
        # 2.5 times what rounding changes: 0.1 on average, 0.1 in the worst prompt
        ([[-1.0, -2.48]], "bfloat16", 0.24, False),
        ([[-1.0, -2.52]], "bfloat16", 0.26, True),
        # one of several prompts, as with a stale block of the prefix cache
        ([[-1.0, -2.52], *4 * [[-1.0, -2.0]]], "bfloat16", 0.052, True),
        ([[-1.0, -2.48], *4 * [[-1.0, -2.0]]], "bfloat16", 0.048, False),
    ],
)
def test_the_differences_are_held_against_the_limits_of_the_data_type(
    own: list[list[float | None]], dtype: str, mean: float, bad: bool
) -> None:
    right = {"logprobs": [-1.0, -2.0], "best": [-0.75, -2.0]}
    rounded = {"rounded": [-1.1, -1.9]} if dtype == "bfloat16" else {}
    scored = [right | rounded] * len(own)
    found = reference.compared([{"logprobs": each} for each in own], scored, dtype)
    same = math.isnan(found.mean) if math.isnan(mean) else found.mean == pytest.approx(mean)
    wanted = (True, 2 * len(own), 0.25, bad)
    assert (same, found.tokens, found.behind, found.bad) == wanted


@pytest.mark.parametrize(
    ("parameters", "python", "weights"), [(1e8, "/p", "/m"), (8e9, "/p", None), (1e8, "", None)]
)
def test_only_a_small_model_of_a_known_engine_has_a_reference(
    parameters: float, python: str, weights: str | None
) -> None:
    model = {"path": "/m", "parameters": parameters}
    plan = {"engine": {"python": python}, "model": model}
    assert reference.weights_of(Target("http://a:1", plan=plan)) == weights
