"""Check this machine and repair what may be."""
