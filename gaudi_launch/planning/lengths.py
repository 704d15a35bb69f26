"""Arithmetic of tokens, blocks and batches, rounded as the start scripts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.planning.request import Request

BLOCK = 128
"""Tokens of one KV block on HPU in every engine version."""


def length_for(usual: int, longest: int | None, asked: Request) -> int:
    """Return the maximum of input plus output where -l is not given.

    In complete blocks; ``usual`` is the engine's default, ``longest`` the model's own maximum.
    Ranges of -i and -o that are longer together than the default need their sum.
    """
    wanted = max(usual, _of_ranges(asked))
    if not longest:
        return wanted
    return min(wanted, max(BLOCK, round_down(longest, BLOCK)))


def is_of_ranges(asked: Request, length: int) -> bool:
    """Return True if ``length`` is the sum of -i and -o because no -l is given."""
    return asked.max_model_len is None and length == _of_ranges(asked)


def _of_ranges(asked: Request) -> int:
    """Return the longest request of -i and -o, in complete blocks; 0 without."""
    _, inputs = asked.input_range or (0, 0)
    _, outputs = asked.output_range or (0, 0)
    if not inputs and not outputs:
        return 0
    return round_up(inputs + max(outputs, 1), BLOCK)


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
