"""Start, supervise, signal and end engine processes."""
