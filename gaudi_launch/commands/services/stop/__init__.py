"""Stop services."""
