"""Sample services and cards for monitoring."""
