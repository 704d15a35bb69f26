"""``gaudi-launch warmup``: how many graphs, how long, what is left out, and a plan that does better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared

if TYPE_CHECKING:
    from gaudi_launch.cli.warmup_case import Case, Result

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

_PLAN, _SHOW = "Buckets", "Output"


@app.command()
@shared
def warmup(
    asked: dict[str, Any],
    trace: str = typer.Option(
        "", help="Past requests: CSV, JSON lines, /metrics page or URL.", metavar="FILE|URL", rich_help_panel=_PLAN
    ),
    graphs: int = typer.Option(
        0, show_default=False, help="At most so many graphs.", metavar="N", rich_help_panel=_PLAN
    ),
    overhead: str = typer.Option("", help="At most this padding overhead.", metavar="P%", rich_help_panel=_PLAN),
    budget: str = typer.Option("", help="At most this warm-up time: 90s, 3m, 1h.", rich_help_panel=_PLAN),
    price: float = typer.Option(
        0.0, show_default=False, help="Share of step time a graph must save.", rich_help_panel=_PLAN
    ),
    trace_share: float = typer.Option(0.8, help="Weight of the trace against the ranges.", rich_help_panel=_PLAN),
    blocks: int = typer.Option(
        0, show_default=False, help="KV cache blocks of the engine.", metavar="N", rich_help_panel=_PLAN
    ),
    constant: list[str] | None = typer.Option(
        None, help="A constant of the step-time model, in ms.", metavar="NAME=MS", rich_help_panel=_PLAN
    ),
    run: bool = typer.Option(False, "--run", help="Start the engine to fill the recipe cache, then stop it."),
    watch: str = typer.Option("", help="Read a running server; plan its next start.", metavar="URL"),
    log: Path | None = typer.Option(None, help="With --watch: the server's log."),
    ask_engine: bool = typer.Option(False, "--ask-engine", help="Compare with the installed engine's own list."),
    plot: Path | None = typer.Option(None, help="Draw the grid.", metavar="FILE.png|.svg", rich_help_panel=_SHOW),
    list_: bool = typer.Option(False, "--list", help="Every bucket of the plan.", rich_help_panel=_SHOW),
    as_json: bool = typer.Option(False, "--json", help="Everything as one JSON object.", rich_help_panel=_SHOW),
) -> None:
    """Predict warm-up and plan better buckets; nothing is started, no card and no model folder is needed.

    Counts graphs, time, padding and holes of every strategy the engine has, next to a plan of ours that leaves no
    shape out. Tell it your traffic (--trace) or at least its ranges (-i, -o, -b).
    """
    from gaudi_launch.cli import warmup_case as cases
    from gaudi_launch.cli import warmup_view as view
    from gaudi_launch.cli.output import emit_json

    if run:
        return _run(asked, as_json)
    case = cases.read(
        asked,
        trace=watch or trace,
        wish=cases.Wish(graphs, overhead, budget, price),
        trace_share=trace_share,
        blocks=blocks,
        constants=constant or [],
    )
    result = cases.solve(case, log=log, ask=ask_engine)
    if plot is not None:
        view.draw(plot, case, result)
    if as_json:
        emit_json(view.to_json(case, result))
    else:
        _show(case, result, list_, plot)


def _run(asked: dict[str, Any], as_json: bool) -> None:
    """Fill the recipe cache of these words' serve, and say what that took."""
    import contextlib
    import sys

    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.cli.serve import How, start
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text
    from gaudi_launch.services.failure import failure

    # the lines that serve prints for its user are progress here
    with contextlib.redirect_stdout(sys.stderr):
        started = start(asked, How(quiet=True, once=True))
    outcome, log, plan = started.outcome, started.log, started.plan
    assert outcome is not None, "only a detached service has no outcome"
    if outcome.kind != "stopped":
        raise failure(outcome, log)
    if not outcome.was_ready:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    progress = outcome.progress
    graphs = sum(phase.items for phase in progress.phases if phase.name.startswith("warmup_"))
    seconds = progress.facts.get("warmup_seconds", 0)
    folder = str(plan.cache.get("folder", ""))
    if as_json:
        cache = {"key": plan.cache.get("key"), "folder": folder, "before": plan.cache.get("state")}
        return emit_json({"schema": 1, "graphs": graphs, "seconds": seconds, "cache": cache, "log": str(log)})
    return print(text("warmup.ran", graphs=graphs, seconds=seconds, folder=folder or "-"))


def _show(case: Case, result: Result, listing: bool, plot: Path | None) -> None:
    from gaudi_launch.cli import warmup_view as view
    from gaudi_launch.cli.heatmap import heatmap
    from gaudi_launch.cli.output import console, table
    from gaudi_launch.messages import text

    out = console()

    def say(id: str, **values: Any) -> None:
        out.print(text(id, **values), markup=False, soft_wrap=True)

    delivered, asked = result.delivered, case.asked
    chosen = result.chosen
    say(
        "warmup.title",
        engine=asked.name,
        model=case.model.name or text("warmup.no_model"),
        cards=asked.cards,
        seqs=asked.limits.max_num_seqs,
        length=asked.limits.max_model_len,
        tokens=asked.limits.max_num_batched_tokens,
    )
    for assumption in case.assumptions:
        say("warmup.assumed", what=assumption.render())
    for note in result.notes:
        out.print(note.render(), markup=False, soft_wrap=True)
    columns = [text(f"warmup.column_{name}") for name in view.COLUMNS]
    rows = [view.row(judged, judged is chosen, result) for judged in delivered.comparison]
    out.print(table(text("warmup.table"), columns, rows, right=range(1, len(columns))))
    id = "warmup.basis_own" if asked.own else "warmup.basis"
    say(id, basis=result.per_graph.basis.render(), floor=delivered.aim.floor)
    if chosen.buckets is not None:
        for name, part, time, axis in (
            ("prompt", result.shapes.prompt, case.cost.prefill, 1),
            ("decode", result.shapes.decode, case.cost.decode, 2),
        ):
            pairs = [(b[0], b[axis]) for b in getattr(chosen.buckets, name) if axis == 2 or b[2] == 0]
            out.print(heatmap(text(f"warmup.map_{name}"), pairs, part, time))
        say("warmup.map_legend")
    if chosen is delivered.comparison[0] and not asked.own:
        say("warmup.prefill_seqs", count=delivered.max_prefill_seqs)
        for name, value in delivered.settings.items():
            out.print(f"  {name}={value}", markup=False)
        if delivered.file is not None:
            say("warmup.bucket_file", lines=delivered.file.count("\n") - 1)
    if listing and chosen.buckets is not None:
        if delivered.file is not None and chosen is delivered.comparison[0]:
            out.print(delivered.file, markup=False, soft_wrap=True)
        else:
            for bucket in [*chosen.buckets.prompt, *chosen.buckets.decode]:
                out.print(str(tuple(bucket)), markup=False)
    if plot is not None:
        say("warmup.drawn", path=str(plot))
