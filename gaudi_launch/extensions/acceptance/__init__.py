"""The acceptance test of a server with cards: ``doctor --deep``."""
