"""Buckets: what each engine compiles before it answers, and a planner that needs fewer graphs.

Its rooms are imported by their own names: a plan asks for few of them.
"""
