"""How each engine builds its bucket list, reproduced value for value."""
