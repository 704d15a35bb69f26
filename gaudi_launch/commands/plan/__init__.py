"""Every setting that `serve` would use, with its reason."""
