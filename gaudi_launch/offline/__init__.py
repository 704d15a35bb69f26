"""A pack: everything that one engine and one model need on a host without a network."""
