"""The cards and the context that a model fits."""
