"""Arithmetic of tokens, blocks and batches, rounded as the start scripts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from gaudi_launch.planning.request import Request

BLOCK = 128
"""Tokens of one KV block on HPU in every engine version."""


_OUTPUT = 2048
"""Longest output of the scripts' -o: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh."""


def length_for(usual: int, longest: int | None, asked: Request) -> int:
    """Return the maximum of input plus output where -l is not given.

    In complete blocks; ``usual`` is the engine's default, ``longest`` the model's own maximum.
    Longer requests that -i, -o and -r name need their length.
    """
    wanted = max(usual, _of_ranges(asked), _of_hot(asked))
    if not longest:
        return wanted
    return min(wanted, max(BLOCK, round_down(longest, BLOCK)))


def reason_for(asked: Request, length: int) -> Message | None:
    """Return the reason of a length that -i, -o or -r decided because no -l is given."""
    if asked.max_model_len is not None:
        return None
    if length == _of_ranges(asked):
        return message("plan.length_of_ranges")
    if length == _of_hot(asked):
        return message("plan.length_of_hot")
    return None


def _of_ranges(asked: Request) -> int:
    """Return the longest request of -i and -o, in complete blocks; 0 without."""
    _, inputs = asked.input_range or (0, 0)
    _, outputs = asked.output_range or (0, 0)
    if not inputs and not outputs:
        return 0
    return round_up(inputs + max(outputs, 1), BLOCK)


def _of_hot(asked: Request) -> int:
    """Return the longest request of -r, in complete blocks; 0 without."""
    if asked.reduce is None:
        return 0
    _, outputs = asked.output_range or (0, _OUTPUT)
    return round_up(asked.reduce[1] + max(outputs, 1), BLOCK)


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
