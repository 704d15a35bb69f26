"""The facts of one engine release, read from its source and by executing it."""
