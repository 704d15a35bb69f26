"""Errors, messages, paths, locks, readers: what every part may use."""
