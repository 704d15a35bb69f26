"""Check and measure a running server, compare measurements, and chat with it."""
