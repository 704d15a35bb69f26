"""A plan as files, by target."""
