"""Supervise a launched engine: start, follow, probe, diagnose, stop."""
