"""Several models on one server: file, cards, start order, record."""
