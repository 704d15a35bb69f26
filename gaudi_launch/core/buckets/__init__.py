"""The buckets that each engine compiles, and a planner that needs fewer graphs.

Modules are imported directly, because a plan needs few of them.
"""
