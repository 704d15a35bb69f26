"""8-bit weights: arithmetic, conversion and measurement files."""
