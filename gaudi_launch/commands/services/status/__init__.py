"""One service."""
