"""The engines' bucket algorithms, reproduced value for value and named by what they do."""
