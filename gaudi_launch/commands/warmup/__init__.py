"""Warm-up: graphs, time, coverage, better buckets."""
