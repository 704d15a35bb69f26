"""One engine on several hosts, joined by Ray."""
