"""Several hosts as one engine, joined by Ray."""
