"""Arithmetic of tokens, blocks and batches, rounded as the start scripts do."""

from __future__ import annotations

BLOCK = 128
"""Tokens of one KV block on HPU in every engine version."""


def ceil_div(number: int, divisor: int) -> int:
    """
    >>> ceil_div(800, 128)
    7
    """
    return -(-number // divisor)


def round_up(number: int, step: int) -> int:
    """
    >>> round_up(24000, 128)
    24064
    """
    return ceil_div(number, step) * step


def round_down(number: int, step: int) -> int:
    """
    >>> round_down(24000, 128)
    23936
    """
    return number // step * step
