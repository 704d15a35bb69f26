"""One file an engine: what a plan needs to become a command."""
