"""Environments of engines."""
