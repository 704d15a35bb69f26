"""Records of services on disk, and the reservations they hold."""
