"""vLLM's server on the CPU with simulated cards, for rehearsals without a Gaudi."""
