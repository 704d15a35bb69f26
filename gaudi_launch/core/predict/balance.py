"""The goal ``balanced``: output tokens per card while no user waits. Pure.

This is the definition for every command: `serve`, `plan`, `render` and `warmup` choose a number of
cards by it, `recommend` a configuration.
"""

from __future__ import annotations

BALANCED = "balanced"
# assumed: a first token within 2 s, and 10 tokens per second, which is faster than people read
BALANCED_TTFT, BALANCED_TPOT = 2.0, 0.1
# assumed: the lengths of requests where neither options nor a trace name them
TYPICAL_INPUT, TYPICAL_OUTPUT = 1024, 256


def balanced(tokens_per_card: float, *, ttft: float, tpot: float) -> float:
    """Return how well a configuration serves the goal; more is better.

    Output tokens per second and card. A latency above `BALANCED_TTFT` or `BALANCED_TPOT` (seconds)
    takes off as much as it is above: at twice the time, half counts.

    >>> balanced(1000, ttft=0.5, tpot=0.05), balanced(1000, ttft=0.5, tpot=0.2)
    (1000.0, 500.0)
    """
    late = max(1.0, ttft / BALANCED_TTFT) * max(1.0, tpot / BALANCED_TPOT)
    return tokens_per_card / late
