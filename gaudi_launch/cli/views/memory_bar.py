"""A card's memory as one bar with a legend.

The marks differ, so that it is readable without colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.text import Text

_MOST_WIDTH = 60


@dataclass(frozen=True)
class BarPart:
    """One part of the bar: its key in ``Plan.memory``, its marks and its colour.

    One mark is for ASCII terminals.
    """

    name: str
    mark: str
    ascii_mark: str
    color: str


PARTS = (
    BarPart("weights", "█", "#", "blue"),
    BarPart("activations", "▓", "=", "magenta"),
    BarPart("graphs", "▒", "+", "yellow"),
    BarPart("kv", "░", ":", "green"),
    BarPart("states", "▚", "%", "cyan"),
    BarPart("free", "·", ".", ""),
)


def bar(memory: Mapping[str, float], width: int, *, ascii: bool) -> Text:
    """Return the bar, at most ``width`` cells wide.

    ``memory`` is ``Plan.memory``, GiB of one card.

    What exceeds the card is behind the bracket that closes it.
    """
    from rich.text import Text

    sizes = [memory.get(part.name, 0.0) for part in PARTS]
    cells = min(width, _MOST_WIDTH) - 2
    drawn = Text(no_wrap=True)
    for part, count in zip(PARTS, shares(sizes, cells), strict=True):
        drawn.append((part.ascii_mark if ascii else part.mark) * count, style=part.color)
    total = max(sum(sizes), 0.001)
    end = min(cells, round(cells * memory.get("card", total) / total))
    return Text.assemble("[", drawn[:end], "]", drawn[end:], no_wrap=True)


def shares(sizes: list[float], cells: int) -> list[int]:
    """Divide ``cells`` by size: every size above 0 gets at least one.

    The largest remainders get the rest.

    >>> shares([33.9, 1.0, 10.6, 40.0, 8.2], 58)
    [21, 1, 6, 25, 5]
    """
    total = sum(size for size in sizes if size > 0)
    if not total:
        return [0] * len(sizes)
    exact = [cells * max(size, 0.0) / total for size in sizes]
    counts = [max(1, int(share)) if share > 0 else 0 for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda at: exact[at] - counts[at], reverse=True)
    while sum(counts) < cells:
        for at in by_remainder[: cells - sum(counts)]:
            counts[at] += 1
    while sum(counts) > cells:
        counts[counts.index(max(counts))] -= 1
    return counts


def legend(memory: Mapping[str, float], tokens: int | None, *, ascii: bool) -> Text:
    """Return the parts with their marks and GiB.

    ``tokens`` are those of the KV cache.
    """
    from rich.text import Text

    found = Text()
    for part in PARTS:
        if part.name not in memory or _is_unmeasured(part.name, memory):
            continue
        size = f"{memory[part.name]:.1f}"
        words = text(f"plan.part_{part.name}", gib=size)
        if part.name == "kv" and tokens is not None:
            words = text("plan.part_kv_tokens", gib=size, tokens=tokens)
        found.append(part.ascii_mark if ascii else part.mark, style=part.color)
        found.append(f" {words}  ")
    return found.append(text("plan.part_card", gib=f"{memory.get('card', 0.0):.1f}"))


def memory_words(memory: Mapping[str, float]) -> str:
    """Return the parts of a card's memory in GiB, in one line."""
    # a damaged plan may have others
    known = {"card", *(part.name for part in PARTS)}
    return "  ".join(
        text(f"plan.part_{name}", gib=f"{value:.1f}")
        for name, value in memory.items()
        if name in known and not _is_unmeasured(name, memory)
    )


def _is_unmeasured(name: str, memory: Mapping[str, float]) -> bool:
    """Return whether a part is 0 because nothing was measured."""
    return name == "activations" and not memory[name]
