"""The changes between two engine releases."""
