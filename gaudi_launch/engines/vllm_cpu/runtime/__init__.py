"""Programs that run in the CPU engine's own interpreter."""
