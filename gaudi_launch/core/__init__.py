"""Libraries, without a command; each folder imports only from those below it.

The order is in pyproject.toml (import-linter).
"""
