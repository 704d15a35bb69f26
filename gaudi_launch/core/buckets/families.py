"""Families of bucket algorithms: common properties of engines that share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from gaudi_launch.core.buckets import file_format
from gaudi_launch.core.buckets.algorithms import (
    context_ladder,
    every_context,
    fixed_lengths,
    plain_grid,
)
from gaudi_launch.core.buckets.engine_booleans import boolean, is_true
from gaudi_launch.core.buckets.engine_env import Arguments, Env
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.ladder_rules import LadderRules, split_name
from gaudi_launch.core.buckets.script_ranges import RangesOf, from_requests, to_model_length

ModelOf = Callable[[Env, Arguments], EngineModel]

PLAIN_GRID = "plain-grid"
EVERY_CONTEXT = "every-context"
FIXED_LENGTHS = "fixed-lengths"
CONTEXT_LADDER = "context-ladder"

EXPONENTIAL_SWITCH = "VLLM_EXPONENTIAL_BUCKETING"


@dataclass(frozen=True)
class BucketFamily:
    """Algorithms that are selected by the same variables.

    ``models``: each algorithm by its name, in the order in which a comparison lists them.
    ``chosen``: the algorithm that the variables select; its second argument: the installed
    extension has the padding limit. ``script``: the ranges of the public start script; None where
    none is given. ``linear_default``: linear without a variable. ``reads_file``: reads a list from
    a file. ``contexts_by_length``: each prompt length has a bucket for every context that fits with
    it. ``cuts_cache``: the KV cache is cut to complete decode block steps. ``skips_compilation``:
    the start script's -r leaves out the pass over all buckets.
    """

    models: Mapping[str, ModelOf]
    chosen: Callable[[Env, bool], str]
    script: RangesOf | None = None
    linear_default: bool = True
    reads_file: bool = False
    contexts_by_length: bool = False
    cuts_cache: bool = False
    skips_compilation: bool = False

    @property
    def compared(self) -> tuple[str, ...]:
        """Return the algorithms that need nothing but variables."""
        return tuple(name for name in self.models if name != "file")

    def linear(self, *, with_limit: bool) -> str:
        """Return the name of the linear algorithm.

        It has the padding limit where the family has it.
        """
        if with_limit and "linear-limit" in self.models:
            return "linear-limit"
        return "linear"


def _linear_unless_exponential(env: Env, with_limit: bool) -> str:
    if is_true(env.get(EXPONENTIAL_SWITCH) or "false"):
        return "exponential"
    return "linear"


def _exponential_unless_linear(env: Env, with_limit: bool) -> str:
    switch = env.get(EXPONENTIAL_SWITCH)
    if switch is None or boolean(switch):
        return "exponential"
    return _linear_only(env, with_limit)


def _linear_only(env: Env, with_limit: bool) -> str:
    if with_limit:
        return "linear-limit"
    return "linear"


_STRATEGIES = {"lin": "linear", "pad": "pad"}


def _by_strategy(env: Env, with_limit: bool, *, pad: bool = True) -> str:
    if env.get("VLLM_BUCKETING_FROM_FILE"):
        return "file"
    switch = env.get(EXPONENTIAL_SWITCH)
    if switch is None and not pad:
        return "exponential"
    if switch is None:
        return _STRATEGIES.get(env.get("VLLM_BUCKETING_STRATEGY", "exp"), "exponential")
    if boolean(switch):
        return "exponential"
    return "linear"


def _ladder_family(rules: LadderRules) -> BucketFamily:
    """Return context ladders with the rules of one release."""
    models = {
        "exponential": partial(context_ladder.exponential_model, rules=rules),
        "pad": partial(context_ladder.padded_model, rules=rules),
        "linear": partial(context_ladder.linear_model, rules=rules),
        "file": partial(file_format.file_model, rules=rules),
    }
    if not rules.pad:
        del models["pad"]
    return BucketFamily(
        models, partial(_by_strategy, pad=rules.pad), linear_default=False, reads_file=True
    )


FAMILIES: Mapping[str, BucketFamily] = {
    PLAIN_GRID: BucketFamily(
        {"linear": plain_grid.linear_model, "exponential": plain_grid.exponential_model},
        _linear_unless_exponential,
        script=from_requests,
        cuts_cache=True,
        skips_compilation=True,
    ),
    EVERY_CONTEXT: BucketFamily(
        {
            "linear-limit": every_context.linear_limit_model,
            "linear": every_context.linear_model,
            "exponential": every_context.exponential_model,
        },
        _exponential_unless_linear,
        script=to_model_length(batch_step=2),
        linear_default=False,
        contexts_by_length=True,
    ),
    FIXED_LENGTHS: BucketFamily(
        {"linear-limit": fixed_lengths.linear_limit_model, "linear": fixed_lengths.linear_model},
        _linear_only,
        script=to_model_length(batch_step=8),
    ),
    CONTEXT_LADDER: _ladder_family(LadderRules()),
}
"""Family by name; an engine names its own (`Engine.bucket_family`). A new algorithm is a file
and a line here."""


def ladder_name(rules: LadderRules) -> str:
    """Return the name of the family of context ladders with these rules."""
    return CONTEXT_LADDER + rules.suffix


@cache
def family_named(name: str) -> BucketFamily:
    """Return the family of this name, which may end in rules. Raises KeyError."""
    if name in FAMILIES:
        return FAMILIES[name]
    family, rules = split_name(name)
    if family != CONTEXT_LADDER:
        raise KeyError(name)
    return _ladder_family(rules)
