"""Compare a server's first tokens and logprobs with transformers on the CPU.

Prompts are drawn token IDs, so that random weights are judged, too. The reference scores the tokens
of the server: after a tie the two would have different ones. Long prompts are sent twice, the
second time from the prefix cache.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench.client import Client

_log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).parent / "runtime/gaudi_reference.py"
# 8 GB in float32 (assumed: any host of an engine has them)
_MOST_PARAMETERS = 2e9
_SECONDS = 900.0
# IDs that every vocabulary has, and that are not special ones
_IDS = range(100, 1000)
# A server is right within a multiple of what rounding to its data type changes in transformers. On
# the CPU engine in bfloat16, five right models were at most 0.9 times as far from float32, and a
# stale prefix block, one layer's scales changed by 10 %, another rope and swapped layers at least
# 4.9 times in the worst prompt (scripts/acceptance/quality.py). On a card: assumed
_ROUNDING_TIMES = 2.5
# in float32 right weights are 1.4e-5 apart, and the least of those faults 0.44 in the worst prompt
_LEAST_LIMIT = 0.01
# of a data type that transformers does not compute with, such as fp8 (assumed)
_OTHER_LIMIT, _OTHER_PROMPT_LIMIT = 0.1, 0.2
_SHORT, _LONG, _LENGTH, _LONG_LENGTH, _ANSWER = 6, 2, 24, 300, 4


@dataclass(frozen=True)
class ReferenceMatch:
    """The server against transformers.

    ``mean`` and ``worst`` difference of a token's logprob, ``prompt`` the mean of the worst prompt;
    ``behind``: how much likelier the reference's own first token is than the server's, at worst.
    ``limit`` is that of ``mean``, ``prompt_limit`` of ``prompt``.
    """

    tokens: int
    mean: float
    worst: float
    behind: float
    limit: float
    prompt: float = 0.0
    prompt_limit: float = 0.0

    @property
    def bad(self) -> bool:
        return not (self.mean <= self.limit and self.prompt <= self.prompt_limit)


def prompts() -> list[list[int]]:
    """Return the prompts as token IDs; the long ones twice."""
    chance = random.Random(43)
    short = [chance.choices(_IDS, k=_LENGTH) for _ in range(_SHORT)]
    long = [chance.choices(_IDS, k=_LONG_LENGTH) for _ in range(_LONG)]
    return [*short, *long, *long]


async def answers(client: Client, model: str) -> list[dict[str, Any]]:
    """Return each prompt with the tokens and logprobs of the server; [] without IDs."""
    rows = []
    for prompt in prompts():
        body = {"model": model, "prompt": prompt, "max_tokens": _ANSWER, "temperature": 0.0}
        body |= {"logprobs": 1, "return_tokens_as_token_ids": True, "ignore_eos": True}
        reply = await client.ask("/v1/completions", body)
        choice = mapping(next(iter(array(mapping(reply.document).get("choices"))), None))
        found = mapping(choice.get("logprobs"))
        names = [str(each) for each in array(found.get("tokens"))]
        if reply.status != 200 or not all(each.startswith("token_id:") for each in names):
            _log.debug("no token IDs from the server: %s", reply.status)
            return []
        tokens = [int(each.removeprefix("token_id:")) for each in names]
        logprobs = array(found.get("token_logprobs"))
        rows.append({"prompt": prompt, "answer": tokens, "logprobs": logprobs})
    return rows


def weights_of(target: Target) -> str | None:
    """Return the model folder of a service, where the CPU can run it; else None."""
    model = mapping(target.plan.get("model"))
    parameters = model.get("parameters")
    if target.python is None or not parameters or parameters > _MOST_PARAMETERS:
        return None
    return str(model.get("path"))


def match(rows: Sequence[Mapping[str, Any]], target: Target, weights: str) -> ReferenceMatch | None:
    """Return the match with transformers; None without rows, or if it does not run."""
    if not rows:
        return None
    # without it, torch opens a card
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1"}
    dtype = str(target.plan.get("dtype"))
    given = json.dumps({"model": weights, "dtype": dtype, "rows": rows})
    try:
        done = interrupt.run(
            [str(target.python), str(_PROGRAM)],
            streams=interrupt.Streams(text_in=given),
            env=environment,
            seconds=_SECONDS,
        )
        scored = parse_json(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        _log.debug("no reference: %s", error)
        return None
    return compared(rows, scored, dtype)


def compared(
    rows: Sequence[Mapping[str, Any]], scored: Sequence[Mapping[str, Any]], dtype: str
) -> ReferenceMatch:
    """Return the differences of the server's logprobs from those of the reference."""
    apart = [_apart(row["logprobs"], right) for row, right in zip(rows, scored, strict=True)]
    limit, prompt_limit = _limits(scored, dtype)
    differences = [each for prompt in apart for each in prompt]
    return ReferenceMatch(
        tokens=len(differences),
        mean=fmean(differences),
        worst=max(differences),
        behind=max(each["best"][0] - each["logprobs"][0] for each in scored),
        limit=limit,
        prompt=max(map(fmean, apart)),
        prompt_limit=prompt_limit,
    )


def _apart(logprobs: Sequence[float | None], right: Mapping[str, Any]) -> list[float]:
    return [
        abs((own if own is not None else float("nan")) - other)
        for own, other in zip(logprobs, right["logprobs"], strict=True)
    ]


def _limits(scored: Sequence[Mapping[str, Any]], dtype: str) -> tuple[float, float]:
    """Return the limits of the mean of all tokens, and of that of the worst prompt."""
    if dtype == "float32":
        return _LEAST_LIMIT, _LEAST_LIMIT
    if not all("rounded" in each for each in scored):
        return _OTHER_LIMIT, _OTHER_PROMPT_LIMIT
    apart = [_apart(each["rounded"], each) for each in scored]
    found = fmean(each for prompt in apart for each in prompt), max(map(fmean, apart))
    mean, worst = (max(_LEAST_LIMIT, _ROUNDING_TIMES * each) for each in found)
    return mean, worst
