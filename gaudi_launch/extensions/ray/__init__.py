"""Ray Serve around another engine."""
