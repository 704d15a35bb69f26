"""Start and measure the best few plans."""
