"""Records of services on disk, and their reservations."""
