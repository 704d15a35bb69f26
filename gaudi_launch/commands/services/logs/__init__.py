"""A service's log."""
