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
# the mean difference of a sound server by its data type, of all tokens and of the worst prompt,
# by the CPU engine with the demo model. float32: right weights are 6e-6 apart, a stale prefix block
# 0.06. bfloat16: the worst of ten right requests 0.08, two with a stale block 0.32 and 0.46; the
# limit of its mean, and those of other types: assumed
LIMITS = {"float32": 0.01, "": 0.1}
PROMPT_LIMITS = {"float32": 0.01, "": 0.2}
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
    given = json.dumps({"model": weights, "rows": rows})
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
    return compared(rows, scored, str(target.plan.get("dtype")))


def compared(
    rows: Sequence[Mapping[str, Any]], scored: Sequence[Mapping[str, Any]], dtype: str
) -> ReferenceMatch:
    """Return the differences of the server's logprobs from those of the reference."""
    by_prompt = [
        [
            abs((own if own is not None else float("nan")) - right)
            for own, right in zip(row["logprobs"], reference["logprobs"], strict=True)
        ]
        for row, reference in zip(rows, scored, strict=True)
    ]
    differences = [each for prompt in by_prompt for each in prompt]
    behind = max(each["best"][0] - each["logprobs"][0] for each in scored)
    count = len(differences)
    return ReferenceMatch(
        tokens=count,
        mean=sum(differences) / count,
        worst=max(differences),
        behind=behind,
        limit=LIMITS.get(dtype, LIMITS[""]),
        prompt=max(fmean(each) for each in by_prompt),
        prompt_limit=PROMPT_LIMITS.get(dtype, PROMPT_LIMITS[""]),
    )
