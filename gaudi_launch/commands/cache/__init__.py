"""List, verify, prune and copy caches of compiled graphs."""
