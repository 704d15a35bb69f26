"""Convert an fp8 checkpoint; calibrate a model."""
