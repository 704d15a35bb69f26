"""Packs: an engine and a model for a host without a network."""
