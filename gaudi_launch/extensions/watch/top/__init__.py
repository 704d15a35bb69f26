"""Cards, services and hosts, live."""
