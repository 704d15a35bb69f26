"""Buckets: what each engine compiles before it answers, and a planner that needs fewer graphs."""

from gaudi_launch.warmup.buckets import Bucket, BucketError, Buckets
from gaudi_launch.warmup.engine_buckets import (
    algorithm_of,
    count,
    engine_buckets,
    engine_model,
    lookups,
    prompt_buckets,
)
from gaudi_launch.warmup.lookup import BucketTable, Lookup, Lookups

__all__ = [
    "Bucket",
    "BucketError",
    "BucketTable",
    "Buckets",
    "Lookup",
    "Lookups",
    "algorithm_of",
    "count",
    "engine_buckets",
    "engine_model",
    "lookups",
    "prompt_buckets",
]
