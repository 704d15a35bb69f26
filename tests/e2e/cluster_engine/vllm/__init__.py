"""Stands in for vLLM in cluster tests: it asks Ray for HPUs as the fork's executor does, and
serves no model."""
