"""Step times of a model on cards, and the serving simulator that uses them."""
