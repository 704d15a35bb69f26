"""Buckets: what each engine compiles before it answers, and a planner that needs fewer graphs."""

from gaudi_launch.warmup.buckets import Bucket, BucketError, Buckets
from gaudi_launch.warmup.delivery import plan_for_engine
from gaudi_launch.warmup.engine_buckets import (
    algorithm_of,
    count,
    engine_buckets,
    engine_model,
    lookups,
    prompt_buckets,
)
from gaudi_launch.warmup.limits import EngineLimits, as_limits
from gaudi_launch.warmup.lookup import BucketTable, Lookup, Lookups
from gaudi_launch.warmup.planner import Ask, plan, plan_buckets

__all__ = [
    "Ask",
    "Bucket",
    "BucketError",
    "BucketTable",
    "Buckets",
    "EngineLimits",
    "Lookup",
    "Lookups",
    "algorithm_of",
    "as_limits",
    "count",
    "engine_buckets",
    "engine_model",
    "lookups",
    "plan",
    "plan_buckets",
    "plan_for_engine",
    "prompt_buckets",
]
