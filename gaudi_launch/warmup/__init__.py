"""Buckets: what each engine compiles before it answers, and a planner that needs fewer graphs."""

from gaudi_launch.warmup.buckets import Bucket, BucketError, Buckets

__all__ = ["Bucket", "BucketError", "Buckets"]
