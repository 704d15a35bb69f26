"""The answer of ``gaudi-launch warmup`` as a table, as JSON and as a picture."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.commands.warmup.case import WarmupCase, WarmupResult
from gaudi_launch.commands.warmup.picture import heat, picture
from gaudi_launch.core.base.durations import span
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.plotting import write_picture
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.strategies import Judged
from gaudi_launch.core.buckets.warmup_time import Estimate
from gaudi_launch.core.launch.command_line import serve_command
from gaudi_launch.core.predict.simulator import Weighted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from gaudi_launch.core.planning.launch_options import LaunchOptions

_SHADES = " .:-=+*#%@"
_ROWS, _COLUMNS = 10, 56
COLUMNS = ("strategy", "prompt", "decode", "uncovered", "overhead", "cold", "cached")
_OF_NAME = "plan.name_"
_SHORT = ("strategy", "graphs", "uncovered", "overhead", "cold")


def seconds(per_graph: Estimate, graphs: int) -> dict[str, float]:
    """Return low and high seconds of this number of graphs."""
    found = per_graph.of_graphs(graphs)
    return {"low": round(found.low_seconds, 1), "high": round(found.high_seconds, 1)}


def row(judged: Judged, chosen: bool, result: WarmupResult, columns: Sequence[str]) -> list[str]:
    """Return one line of the table."""
    name = f"{judged.name}{' *' * chosen}"
    if judged.failure:
        return [name, judged.failure, *[""] * (len(columns) - 2)]
    cells = {
        "strategy": name,
        "graphs": f"{judged.graphs:,}",
        "prompt": f"{judged.prompt_graphs:,}",
        "decode": f"{judged.decode_graphs:,}",
        "uncovered": "?" if judged.holes is None else f"{judged.holes.shapes:,}",
        "overhead": _percent(judged),
        "cold": _span(result.per_graph, judged),
        "cached": _span(result.per_graph_cached, judged),
    }
    return [cells[name] for name in columns]


def _percent(judged: Judged) -> str:
    if judged.score is None:
        return "?"
    outside = judged.score.outside
    more = ""
    if outside >= 0.0005:
        more = text("warmup.outside", percent=f"{100 * outside:.1f}")
    return f"{100 * judged.score.overhead:.2f} %{more}"


def _span(per_graph: Estimate, judged: Judged) -> str:
    """Return the time of all graphs of a list."""
    found = per_graph.of_graphs(judged.graphs)
    return span(found.low_seconds, found.high_seconds)


def to_json(case: WarmupCase, result: WarmupResult) -> dict[str, Any]:
    """Return the object of --json."""
    from dataclasses import asdict

    delivered = result.delivered
    return {
        "schema": 1,
        "engine": case.asked.name,
        "model": case.model.path or None,
        "limits": asdict(case.asked.limits),
        "max_prefill_seqs": delivered.max_prefill_seqs,
        **_settings_json(result),
        "price": delivered.price,
        "fewest_graphs": delivered.aim.floor,
        "workload": {
            "requests": len(case.workload or ()),
            "distance": delivered.aim.expectation.distance,
        },
        "step_time": case.cost.constants(),
        "estimate_basis": result.per_graph.basis.render(),
        "assumptions": [a.to_json() for a in case.assumptions],
        "notes": [n.to_json() for n in result.notes],
        "plans": [
            _plan_json(judged, judged is result.chosen, result) for judged in delivered.comparison
        ],
    }


def _settings_json(result: WarmupResult) -> dict[str, Any]:
    delivered = result.delivered
    # another list than the planner's is one that plan and serve use by themselves
    if result.chosen is not delivered.comparison[0]:
        return {"settings": {}, "bucket_file": None}
    return {"settings": delivered.settings, "bucket_file": delivered.file}


def _plan_json(judged: Judged, chosen: bool, result: WarmupResult) -> dict[str, Any]:
    graphs = judged.graphs
    found: dict[str, Any] = {
        "strategy": judged.name,
        "chosen": chosen,
        "prompt_graphs": judged.prompt_graphs,
        "decode_graphs": judged.decode_graphs,
        "uncovered": None,
        "overhead": None,
        "outside": None,
        "seconds": seconds(result.per_graph, graphs),
        "seconds_from_cache": seconds(result.per_graph_cached, graphs),
        "failure": judged.failure or None,
        "prompt": None,
        "decode": None,
    }
    if judged.holes is not None:
        found["uncovered"] = judged.holes.shapes
    if judged.score is not None:
        found["overhead"] = round(judged.score.overhead, 6)
        found["outside"] = round(judged.score.outside, 6)
    if judged.buckets is not None:
        found["prompt"], found["decode"] = judged.buckets.prompt, judged.buckets.decode
    return found


def draw(path: Path, case: WarmupCase, result: WarmupResult) -> None:
    """Write the picture.

    Raises LaunchError: USAGE for a folder that cannot be written, FAILED without the library.
    """
    if result.chosen.buckets is None:
        raise LaunchError("warmup.nothing_to_draw", ExitCode.USAGE, strategy=result.chosen.name)
    if case.model.name:
        names = [case.model.name, case.asked.name]
    else:
        names = [case.asked.name]
    title = f"{', '.join(names)}: {result.chosen.name}"
    drawn = picture(result.chosen.buckets, result.shapes, case.cost, title, path.suffix.lower())
    write_picture(path, drawn)


def show(
    case: WarmupCase,
    result: WarmupResult,
    options: LaunchOptions,
    plot: Path | None,
    *,
    complete: bool,
) -> None:
    """Print the time, the next command and the strategies.

    ``complete``: also what is assumed, the chosen strategy as a map, and its settings.
    """
    delivered, asked, chosen = result.delivered, case.asked, result.chosen
    title = text(
        "warmup.title",
        engine=asked.name,
        model=case.model.name or text("warmup.no_model"),
        cards=asked.cards,
        seqs=asked.limits.max_num_seqs,
        length=asked.limits.max_model_len,
        tokens=asked.limits.max_num_batched_tokens,
    )
    columns = COLUMNS if complete else _SHORT
    rows = [row(judged, judged is chosen, result, columns) for judged in delivered.comparison]
    basis = text(
        "warmup.basis_own" if asked.own else "warmup.basis",
        basis=result.per_graph.basis.render(),
        floor=delivered.aim.floor,
    )
    # what is wrong with the name of the model is never left out
    shown = [each for each in case.assumptions if complete or each.id.startswith(_OF_NAME)]
    warnings = [text("warmup.assumed", what=each.render()) for each in shown]
    warnings += [note.render() for note in result.notes]
    tail = [basis]
    if plot is not None:
        tail.append(text("plot.drawn", path=str(plot)))
    if not complete:
        tail.append(text("warmup.more", n=len(case.assumptions) - len(shown)))
    page = ShortPage(
        [answer(result), *_next(case, options), title],
        [text(f"warmup.column_{name}") for name in columns],
        [NotedRow(tuple(each)) for each in rows],
        right=range(1, len(columns)),
        tail=tail,
        warnings=warnings,
        left_out="page.notes",
    )
    page.show(complete=complete)
    if complete:
        _show_chosen(case, result)


def answer(result: WarmupResult) -> str:
    """Return the graphs and times of the chosen list."""
    return text(
        "warmup.answer",
        n=result.chosen.graphs,
        time=_span(result.per_graph, result.chosen),
        cached=_span(result.per_graph_cached, result.chosen),
    )


def _next(case: WarmupCase, options: LaunchOptions) -> list[str | Text]:
    """Return what to do: serve the model, or set the list that was requested."""
    if case.has_goal:
        return [text("warmup.export")]
    command = "gaudi-launch plan MODEL"
    if options.model:
        command = shlex.join(serve_command(options))
    return [next_line(command)]


def listed(result: WarmupResult) -> str:
    """Return every bucket of the chosen list; the file where the engine reads one."""
    buckets = result.chosen.buckets
    if buckets is None:
        return ""
    every = "\n".join(str(tuple(bucket)) for bucket in (*buckets.prompt, *buckets.decode))
    return _settings_json(result)["bucket_file"] or every


def _show_chosen(case: WarmupCase, result: WarmupResult) -> None:
    """Print the map of the chosen list, and the settings that it needs."""
    out, delivered = console(), result.delivered
    if result.chosen.buckets is not None:
        _show_maps(out, case, result, result.chosen.buckets)
    delivers = result.chosen is delivered.comparison[0]
    if delivers and (delivered.settings or delivered.file):
        # print what has to be set to get the chosen strategy
        out.print(text("warmup.prefill_seqs", count=delivered.max_prefill_seqs))
        for name, value in delivered.settings.items():
            out.print(f"  {name}={value}")
        if delivered.file is not None:
            out.print(text("warmup.bucket_file", lines=delivered.file.count("\n") - 1))


def _show_maps(out: Console, case: WarmupCase, result: WarmupResult, buckets: Buckets) -> None:
    """Print a map of prompt buckets without context, and one of decode buckets."""
    prompts = [(batch, tokens) for batch, tokens, context in buckets.prompt if context == 0]
    decodes = [(batch, blocks) for batch, _, blocks in buckets.decode]
    shapes, cost = result.shapes, case.cost
    out.print(_heatmap(text("warmup.map_prompt"), prompts, shapes.prompt, cost.prefill))
    out.print(_heatmap(text("warmup.map_decode"), decodes, shapes.decode, cost.decode))
    out.print(text("warmup.map_legend"))


def _heatmap(title: str, pairs: list[tuple[int, int]], part: Weighted, time: object) -> Text:
    """Return one phase; ``pairs`` are (batch, size) of its buckets.

    Readable without colours.
    """
    from rich.text import Text

    grid = heat(pairs, part, time, _ROWS, _COLUMNS)
    most = max((value for row in grid.share for value in row), default=0.0) or 1.0
    drawn = Text(f"{title}\n", no_wrap=True)
    for row in range(len(grid.batches) - 1, -1, -1):
        drawn.append(f"{grid.batches[row]:>6} |")
        for column in range(len(grid.sizes)):
            warmth = (grid.share[row][column] / most) ** 0.4
            if grid.buckets[row][column]:
                mark = "o"
            else:
                mark = _SHADES[round(warmth * (len(_SHADES) - 1))]
            red, other = 255, round(255 * (1 - warmth))
            style = f"black on rgb({red},{other},{other})" if warmth else ""
            drawn.append(mark, style=style)
        drawn.append("\n")
    sizes = grid.sizes
    left, right = str(sizes[0]), str(sizes[-1])
    drawn.append(" " * 8 + left + " " * max(1, len(sizes) - len(left) - len(right)) + right + "\n")
    return drawn
