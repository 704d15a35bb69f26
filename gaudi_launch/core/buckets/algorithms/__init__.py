"""The engines' bucket algorithms, reproduced value for value.

They are named by what they do.
"""
