"""vLLM's CPU build, for trials and tests on a machine without cards."""
