"""The engine releases that run a model."""
