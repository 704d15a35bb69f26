"""Programs that run in an engine's own interpreter: only the standard library."""
