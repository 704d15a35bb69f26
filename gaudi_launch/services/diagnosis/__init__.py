"""Causes of a failed launch, found in its log."""
