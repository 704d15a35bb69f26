"""Facts, sizes, downloads and conversion of model weights."""
