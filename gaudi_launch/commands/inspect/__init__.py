"""Facts of a model."""
