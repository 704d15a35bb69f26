"""Engine logs: follow, rotate and excerpt them."""
