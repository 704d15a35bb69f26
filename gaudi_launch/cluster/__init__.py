"""More than one machine: how many are needed, and several of them as one engine."""
