"""Find the rules of a release's bucket code by executing it.

The code answers a fixed list of cases; of all rules that `LadderRules` can state, those remain that
give the same lists and look-ups for every one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from gaudi_launch.core.buckets.bucket_list import BucketError
from gaudi_launch.core.buckets.engine_buckets import algorithm_of, engine_model, lookups
from gaudi_launch.core.buckets.families import ladder_name
from gaudi_launch.core.buckets.ladder_rules import CHOICES, LadderRules
from gaudi_launch.core.engines.facts.source import FactsError

Answers = Callable[[Sequence[Mapping[str, Any]]], Sequence[Any]]
"""The answers of the release's code to cases (`introspect.ask_buckets`)."""

# the parts of an answer, each with the rules that it shows first
_SHOWN = (
    ("prompt", ("prompt_fits", "long_contexts", "ladder", "one_token", "pad")),
    ("prompt", ("chunks", "skips_lines")),
    ("decode", ("decode_top", "cut", "decode_steps")),
    ("decode", ("linear_cache", "speculation")),
    ("found", ("added",)),
)
_RANDOM = 24
_SHAPES = (
    ("prompt", 1, 300, 3),
    ("prompt", 9, 5000, 0),
    ("prompt", 1, 1000, 100000),
    ("decode", 3, 1, 77),
    ("decode", 5, 1, 1000000),
    ("decode", 5, 1, 1000000),
    ("decode", 200, 1, 300),
)
_FILE = "(1, 128, 0)\n(1, 2048, 30)\n(2, 512, 4)\n(1, 1024, 31)\n(1, 1, 60)\n(8, 1, 400)\n"


@dataclass(frozen=True)
class BucketCase:
    """One question to the bucket code: variables, arguments, and shapes to look up.

    ``shows`` are rules that decide nothing in the other cases.
    """

    env: Mapping[str, str]
    args: Mapping[str, Any]
    shows: tuple[str, ...] = ()
    shapes: Sequence[tuple[str, int, int, int]] = field(default=_SHAPES)

    def as_json(self) -> dict[str, Any]:
        return {"env": dict(self.env), "args": dict(self.args), "shapes": list(self.shapes)}


def cases() -> tuple[BucketCase, ...]:
    """Return the cases, the same ones each time.

    Each rule has one in which it decides; drawn ones show rules that no one has thought of.
    """
    plain = {
        "max_num_seqs": 32,
        "max_model_len": 4096,
        "block_size": 128,
        "num_hpu_blocks": 300,
        "max_num_prefill_seqs": 4,
        "max_num_batched_tokens": 2048,
    }
    long = {**plain, "max_model_len": 32768}
    switch, bound = "VLLM_EXPONENTIAL_BUCKETING", "VLLM_PROMPT_CTX_BUCKET_MAX"
    states = ("chunks",)
    linear = {switch: "false", "VLLM_PROMPT_CTX_BUCKET_STEP": "8"}
    found = [
        BucketCase({}, plain),
        BucketCase({}, {**plain, "num_hpu_blocks": 90}),
        BucketCase({}, {**plain, "num_hpu_blocks": 5000, "max_num_seqs": 5}),
        BucketCase({}, long),
        BucketCase({}, {**long, "max_model_len": 33000, "num_hpu_blocks": 2000}),
        BucketCase({"VLLM_CONTIGUOUS_PA": "true"}, long),
        BucketCase({"VLLM_CONTIGUOUS_PA": "true"}, {**plain, "num_hpu_blocks": 5000}),
        BucketCase({bound: "20"}, long),
        BucketCase({"VLLM_PROMPT_QUERY_BUCKET_MIN": "1"}, plain),
        BucketCase(linear, plain, ("linear_cache",)),
        BucketCase({**linear, "VLLM_DECODE_BLOCK_BUCKET_MIN": "2000"}, plain, ("linear_cache",)),
        BucketCase({**linear, "VLLM_CONTIGUOUS_PA": "true"}, plain, ("linear_cache",)),
        BucketCase({"VLLM_BUCKETING_STRATEGY": "pad"}, {**plain, "max_num_seqs": 8}),
        BucketCase({}, {**plain, "num_speculative_tokens": 2}, ("speculation",)),
        BucketCase({}, {**plain, "mamba_chunk_size": 256}, states),
        BucketCase(
            {}, {**plain, "mamba_chunk_size": 256, "mamba_chunk_size_is_explicit": True}, states
        ),
        BucketCase({}, {**plain, "mamba_chunk_size": 256, "max_num_batched_tokens": 2000}, states),
        BucketCase({}, {**long, "max_model_len": 33000, "mamba_chunk_size": 128}, states),
        BucketCase({}, {**plain, "bucket_file": _FILE}),
        BucketCase({}, {**plain, "bucket_file": _FILE + "not a bucket\n"}, ("skips_lines",)),
    ]
    chance = random.Random(2026)
    return (*found, *(_drawn(chance) for _ in range(_RANDOM)))


def _drawn(chance: random.Random) -> BucketCase:
    length = chance.choice((chance.randint(300, 9000), 8192, chance.randrange(8192, 40000, 128)))
    args = {
        "max_num_seqs": chance.choice((1, 3, 16, 100, 128, chance.randint(1, 300))),
        "max_model_len": length,
        "block_size": 128,
        "num_hpu_blocks": chance.randint(100, 12000),
        "max_num_prefill_seqs": chance.choice((1, 2, 8)),
        "max_num_batched_tokens": chance.choice((2048, 2048, 8192)),
        "num_speculative_tokens": chance.choice((0, 0, 0, 2)),
    }
    env = {}
    if chance.random() < 0.3:
        env["VLLM_CONTIGUOUS_PA"] = chance.choice(("true", "false", "1"))
    if chance.random() < 0.25:
        env["VLLM_BUCKETING_STRATEGY"] = "pad"
    shows = ("speculation",) if args["num_speculative_tokens"] else ()
    return BucketCase(env, args, shows)


def find_rules(answers: Answers) -> LadderRules:
    """Return the rules of the code that gives these answers.

    Raises FactsError with the first case that none of them gives.
    """
    asked = cases()
    replies = answers([each.as_json() for each in asked])
    if len(replies) != len(asked):
        raise FactsError("the bucket code did not answer")
    pairs = list(zip(asked, replies, strict=True))
    known = [LadderRules()]
    for number, (part, names) in enumerate(_SHOWN):
        later = [name for _, others in _SHOWN[number + 1 :] for name in others]
        choices = list(product(*(CHOICES[name] for name in names)))
        known = [
            replace(rules, **dict(zip(names, values, strict=True)))
            for rules in known
            for values in choices
        ]
        decided = [pair for pair in pairs if not {*pair[0].shows} & {*later}]
        # the rules that give this part of every answer, and the last case
        remaining, case = list(known), BucketCase({}, {})
        for case, reply in decided:
            remaining = [rules for rules in remaining if _fits(rules, case, reply, part)]
            if not remaining:
                break
        known, failed = remaining, case
        if not known:
            raise FactsError(f"{part}: {dict(failed.env)} {dict(failed.args)}")
    return known[0]


def _fits(rules: LadderRules, case: BucketCase, reply: Any, part: str) -> bool:
    """Return True if these rules give this part of the engine's answer."""
    if not isinstance(reply, dict) or "missing" in reply:
        return False
    mine = computed(rules, case, part)
    if "error" not in reply:
        return bool(mine == reply[part])
    # a message's sentence differs from release to release; the part that fails is not known
    return isinstance(mine, str) or isinstance(computed(rules, case, "decode"), str)


def computed(rules: LadderRules, case: BucketCase, part: str) -> Any:
    """Return one part of our answer to a case, or the error's text."""
    family = ladder_name(rules)
    algorithm = algorithm_of(family, case.env, with_limit=False)
    if case.args.get("bucket_file") is not None:
        algorithm = "file"
    try:
        if part == "found":
            rule = lookups(family, algorithm, case.env, case.args, remember=True)
            return [_looked_up(rule, *shape) for shape in case.shapes]
        model = engine_model(family, algorithm, case.env, case.args)
        return (model.prompt if part == "prompt" else model.decode).buckets()
    except (BucketError, ValueError, ArithmeticError) as error:
        return str(error)


def _looked_up(rule: Any, phase: str, batch: int, query: int, context: int) -> list[int]:
    found = rule.prompt(batch, query, context) if phase == "prompt" else rule.decode(batch, context)
    return list(found.bucket)
