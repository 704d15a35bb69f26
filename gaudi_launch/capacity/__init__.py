"""Replicas, cards and nodes for a rate of requests within latency targets."""
