"""Checks over a Host, and the remedies that may be applied and undone."""
