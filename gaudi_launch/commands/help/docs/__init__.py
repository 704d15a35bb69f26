"""The pages of the documentation in a terminal."""
