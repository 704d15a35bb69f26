"""Runs as pictures: the spread of TTFT, and tokens per second over time.

Terminal, PNG and SVG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gaudi_launch.core.base.plotting import (
    BLUE,
    ORANGE,
    dress,
    label,
    plain_numbers,
    rendered,
    sheet,
)
from gaudi_launch.extensions.bench.run_file import BenchRun, Sample
from gaudi_launch.extensions.bench.statistics import over_time, values

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_COLORS = (BLUE, ORANGE)
_BINS = 80


def histogram(numbers: Sequence[float], rows: int = 8) -> list[tuple[float, float, int]]:
    """Return (low, high, count) of equal cells on a logarithmic scale.

    They reach from the smallest to the largest value.
    """
    positive = sorted(number for number in numbers if number > 0)
    if not positive:
        return []
    low, high = positive[0], positive[-1]
    if high <= low * 1.0001:
        return [(low, high, len(positive))]
    step = math.log(high / low) / rows
    ends = [low * math.exp(step * at) for at in range(rows)] + [high]
    counts = [0] * rows
    for number in positive:
        counts[min(rows - 1, int(math.log(number / low) / step))] += 1
    return list(zip(ends, ends[1:], counts, strict=False))


def terminal(
    samples: Sequence[Sample], titles: tuple[str, str], width: int = 60, ascii: bool = False
) -> list[str]:
    """Return lines of both plots; ``titles`` are those of TTFT and of the rate.

    The result is empty when no request succeeded.
    """
    shades = _ASCII if ascii else _BLOCKS
    cells = histogram(values(samples, "ttft"))
    if not cells:
        return []
    most = max(count for _, _, count in cells)
    lines = [titles[0]]
    for low, high, count in cells:
        bar = shades[-1] * round((width - 20) * count / most) or (shades[1] if count else "")
        lines.append(f"{_ms(low):>8} -{_ms(high):>8} |{bar} {count}")
    seconds, rates = over_time(samples, width)
    top = max(rates, default=0.0)
    if top > 0:
        lines += ["", titles[1]]
        marks = "".join(shades[_level(rate / top, len(shades))] for rate in rates)
        lines.append(f"{top:>8.0f} |{marks}|")
        lines.append(" " * 10 + "0" + f"{seconds * len(rates):.0f} s".rjust(len(rates) - 1))
    return lines


def _level(share: float, levels: int) -> int:
    if share <= 0:
        return 0
    return max(1, round(share * (levels - 1)))


def _ms(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds:.0f} s"


def titles(runs: Sequence[BenchRun]) -> tuple[str, str]:
    """Return a picture's two lines: the models and when they were measured.

    The load of the first run.
    """
    from datetime import datetime

    models = list(dict.fromkeys(str(run.facts.get("model") or "?") for run in runs))
    began = [run.facts["began"] for run in runs if isinstance(run.facts.get("began"), int | float)]
    days = list(
        dict.fromkeys(f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M}" for moment in began)
    )
    workload = runs[0].workload
    counts = {
        name: workload.get(name, "?") for name in ("requests", "input_tokens", "output_tokens")
    }
    words = [label("plot.load", **counts)]
    if workload.get("rate"):
        words.append(label("plot.load_rate", rate=f"{workload['rate']:g}"))
    if workload.get("concurrency"):
        words.append(label("plot.load_limit", limit=workload["concurrency"]))
    return ", ".join([" / ".join(models), *days]), "; ".join(words)


def picture(
    runs: Sequence[tuple[str, Sequence[Sample]]], title: str, subtitle: str, ending: str
) -> bytes:
    """Return both panels of one or two named runs as a PNG or SVG file.

    Raises LaunchError (FAILED).
    """
    with sheet(title, subtitle, columns=2, size=(11, 4.8)) as made:
        _spread(made, runs)
        _course(made, runs)
        return rendered(made, ending)


def _spread(made: Any, runs: Sequence[tuple[str, Sequence[Sample]]]) -> None:
    """Draw the share of requests (y) with a first token within a time (x, log)."""
    axis = made.axes[0]
    dress(axis, label("plot.spread"), label("plot.ttft_ms"), label("plot.share_requests"))
    for (name, samples), color in zip(runs, _COLORS, strict=False):
        ordered = sorted(1000 * number for number in values(samples, "ttft") if number > 0)
        if ordered:
            shares = [100 * place / len(ordered) for place in range(1, len(ordered) + 1)]
            axis.step([ordered[0], *ordered], [0, *shares], where="post", color=color, label=name)
    if axis.lines:
        axis.set_xscale("log")
        plain_numbers(axis.xaxis)
        axis.legend(loc="lower right")
    axis.set_ylim(0, 101)
    axis.set_yticks([0, 25, 50, 75, 90, 99])


def _course(made: Any, runs: Sequence[tuple[str, Sequence[Sample]]]) -> None:
    """Draw output tokens per second (up) over the run's time (along)."""
    axis = made.axes[1]
    dress(axis, label("plot.course"), label("plot.time_s"), label("measure.name_output_rate"))
    for (name, samples), color in zip(runs, _COLORS, strict=False):
        seconds, rates = over_time(samples, _BINS)
        if rates:
            moments = [seconds * place for place in range(len(rates) + 1)]
            axis.stairs(rates, moments, color=color, label=name, linewidth=1.5)
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    plain_numbers(axis.yaxis)
    if axis.patches:
        axis.legend(loc="lower center")
