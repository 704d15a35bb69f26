"""What the weights need: facts from config.json, sizes, downloads, conversion."""
