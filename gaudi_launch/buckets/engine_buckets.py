"""Exact bucket lists of the engines: what a start of theirs would warm up, without starting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gaudi_launch.buckets import file_format
from gaudi_launch.buckets.algorithms import fork_1_21, fork_1_22, fork_deepseek, plugin
from gaudi_launch.buckets.bucket_list import Bucket, BucketError, Buckets
from gaudi_launch.buckets.engine_env import Arguments, Env, arguments, boolean, is_true
from gaudi_launch.buckets.engine_model import EngineModel
from gaudi_launch.buckets.lookup import Lookups
from gaudi_launch.errors import ExitCode, LaunchError

T = TypeVar("T")

FORK_1_21 = "vllm-fork-aice-v1.21.0"
FORK_1_22 = "vllm-fork-aice-v1.22.0"
FORK_DEEPSEEK = "vllm-fork-deepseek_r1"
PLUGIN = "vllm-gaudi-main"

MODELS: Mapping[tuple[str, str], Callable[[Env, Arguments], EngineModel]] = {
    (FORK_1_21, "linear"): fork_1_21.linear_model,
    (FORK_1_21, "exponential"): fork_1_21.exponential_model,
    (FORK_1_22, "linear"): fork_1_22.linear_model,
    (FORK_1_22, "linear-limit"): fork_1_22.linear_limit_model,
    (FORK_1_22, "exponential"): fork_1_22.exponential_model,
    (FORK_DEEPSEEK, "linear"): fork_deepseek.linear_model,
    (FORK_DEEPSEEK, "linear-limit"): fork_deepseek.linear_limit_model,
    (PLUGIN, "exponential"): plugin.exponential_model,
    (PLUGIN, "linear"): plugin.linear_model,
    (PLUGIN, "pad"): plugin.padded_model,
    (PLUGIN, "file"): file_format.file_model,
}
"""Engine and algorithm to its model. A new algorithm is a file and a line here."""


def engine_model(engine: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]) -> EngineModel:
    """All that the engine's bucketing does with these variables and arguments.

    ``env``: the variables of the engine's process (others are ignored). ``args``: the generator's arguments by name
    (`engine_env.Arguments`). Decode buckets are computed when asked for. Raises LaunchError for an unknown engine,
    algorithm or a missing argument, BucketError where the engine would fail on its prompt buckets.
    """
    make = MODELS.get((engine, algorithm))
    if make is None:
        known = ", ".join(sorted(name for owner, name in MODELS if owner == engine))
        if not known:
            engines = ", ".join(sorted({owner for owner, _ in MODELS}))
            raise LaunchError("warmup_engine.unknown_engine", ExitCode.USAGE, engine=engine, known=engines)
        raise LaunchError(
            "warmup_engine.unknown_algorithm", ExitCode.USAGE, engine=engine, algorithm=algorithm, known=known
        )
    read = arguments(args)
    return _in_words(lambda: make({name: str(value) for name, value in env.items()}, read))


def engine_buckets(engine: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]) -> Buckets:
    """Prompt and decode buckets in the engine's order. Raises as `engine_model`, BucketError also for decode."""
    model = engine_model(engine, algorithm, env, args)
    return _in_words(lambda: model.buckets)


def prompt_buckets(engine: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]) -> list[Bucket]:
    """Prompt buckets alone: they need no KV cache size."""
    return engine_model(engine, algorithm, env, args).prompt.buckets()


def count(engine: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any]) -> tuple[int, int]:
    """(prompt graphs, decode graphs) without writing the buckets out. Raises as `engine_buckets`."""
    model = engine_model(engine, algorithm, env, args)
    return model.prompt.count(), _in_words(lambda: model.decode.count())


def lookups(
    engine: str, algorithm: str, env: Mapping[str, str], args: Mapping[str, Any], *, remember: bool = False
) -> Lookups:
    """The engine's look-up over its own buckets; ``remember`` keeps buckets invented on the way, as it does."""
    model = engine_model(engine, algorithm, env, args)
    return _in_words(lambda: model.lookups(remember))


def algorithm_of(engine: str, env: Mapping[str, str], *, with_limit: bool) -> str:
    """The algorithm that the engine would choose from its environment.

    ``with_limit``: the installed extension of 1.22 or deepseek_r1 has the padding limit (look for
    ``warmup_range_with_limit`` in its linear.py or bucketing.py). Sources: the extension's bucketing/common.py of
    each branch, vllm_gaudi/extension/bucketing/common.py ``get_bucketing_strategy``.
    """
    exponential = env.get("VLLM_EXPONENTIAL_BUCKETING")
    linear = "linear-limit" if with_limit else "linear"
    if engine == FORK_1_21:
        return "exponential" if is_true(exponential or "false") else "linear"
    if engine == FORK_1_22:
        return linear if exponential is not None and not boolean(exponential) else "exponential"
    if engine == FORK_DEEPSEEK:
        return linear
    if env.get("VLLM_BUCKETING_FROM_FILE"):
        return "file"
    if exponential is not None:
        return "exponential" if boolean(exponential) else "linear"
    return {"lin": "linear", "pad": "pad"}.get(env.get("VLLM_BUCKETING_STRATEGY", "exp"), "exponential")


def _in_words(compute: Callable[[], T]) -> T:
    """The engines compute with the same operations, so what fails here fails there with the same words."""
    try:
        return compute()
    except (ValueError, TypeError, ArithmeticError, IndexError) as error:
        raise BucketError(f"{type(error).__name__}: {error}") from error
