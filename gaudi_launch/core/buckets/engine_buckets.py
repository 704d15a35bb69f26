"""Exact bucket lists of the engines' warm-ups, without starting the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.engine_env import arguments
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.families import FAMILIES, family_named
from gaudi_launch.core.buckets.lookup import Lookups

T = TypeVar("T")


def engine_model(
    family: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]
) -> EngineModel:
    """Return the result of the engine's bucketing with these variables and arguments.

    ``family``: a name for `families.family_named`. ``env``: the variables of the engine's process
    (others are ignored). ``args``: the generator's arguments by name (`engine_env.Arguments`), and
    ``decode_block_size`` where decode buckets count other blocks.
    Raises LaunchError for an unknown family, algorithm or a missing argument, BucketError where the
    engine would fail on its prompt buckets; decode buckets are computed, and fail, on demand.
    """
    try:
        known = family_named(family)
    except (KeyError, ValueError):
        raise LaunchError(
            "warmup_engine.unknown_engine",
            ExitCode.USAGE,
            engine=family,
            known=", ".join(sorted(FAMILIES)),
        ) from None
    make = known.models.get(algorithm)
    if make is None:
        raise LaunchError(
            "warmup_engine.unknown_algorithm",
            ExitCode.USAGE,
            engine=family,
            algorithm=algorithm,
            known=", ".join(sorted(known.models)),
        )
    texts, read = {name: str(value) for name, value in env.items()}, arguments(args)
    model = decode = _in_words(lambda: make(texts, read))
    if args.get("decode_block_size"):
        decode = make(texts, replace(read, block_size=args["decode_block_size"]))
    return replace(model, make_decode=partial(_in_words, decode.make_decode))


def engine_buckets(
    family: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]
) -> Buckets:
    """Return prompt and decode buckets in the engine's order.

    Raises as `engine_model`, BucketError also for decode.
    """
    return engine_model(family, algorithm, env, args).buckets


def lookups(
    family: str,
    algorithm: str,
    env: Mapping[str, str],
    args: Mapping[str, Any],
    *,
    remember: bool = False,
) -> Lookups:
    """Return the engine's look-up over its buckets.

    ``remember`` keeps buckets that it adds on the way, as the engine does.
    """
    return _in_words(lambda: engine_model(family, algorithm, env, args).lookups(remember))


def algorithm_of(family: str, env: Mapping[str, str], *, with_limit: bool) -> str:
    """Return the algorithm that the engine would choose from its environment.

    ``with_limit``: the installed extension of 1.22 or deepseek_r1 has the padding limit (look for
    ``warmup_range_with_limit`` in its linear.py or bucketing.py). Sources: the extension's
    bucketing/common.py of each branch, vllm_gaudi/extension/bucketing/common.py
    ``get_bucketing_strategy``.
    """
    return family_named(family).chosen(env, with_limit)


def _in_words(compute: Callable[[], T]) -> T:
    """Raise what fails here as the engine's error.

    The engines compute with the same operations, so the same inputs fail there with the same text.
    """
    try:
        return compute()
    except (ValueError, TypeError, ArithmeticError, IndexError) as error:
        raise BucketError(f"{type(error).__name__}: {error}") from error
