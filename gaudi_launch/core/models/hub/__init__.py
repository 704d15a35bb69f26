"""Models on a hub: list, fetch, verify and find them on this machine."""
