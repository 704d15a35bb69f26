"""``gaudi-launch recommend``: find the best configuration of a model for a goal."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import OUTPUT_JSON, CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.recommend import case as cases
from gaudi_launch.extensions.recommend.case import RecommendOptions

app = CommandApp()

_SHOW = "Output"
_Options = record(RecommendOptions())


@app.command(cls=RecordCommand)
def recommend(
    given: RecommendOptions = _Options,
    options: LaunchOptions = Launch,
    plot: Path | None = typer.Option(
        None,
        help="Draw tokens/s per card against TPOT.",
        metavar="FILE.png|.svg",
        rich_help_panel=_SHOW,
    ),
    save: Path | None = typer.Option(
        None,
        "--save",
        metavar="DIR",
        help="Write the best three plans to a folder, for tune and for serve --plan FILE.",
        rich_help_panel=_SHOW,
    ),
    everything: bool = typer.Option(
        False,
        "--all",
        help="Every note, and the answer as an entry of stack.yaml.",
        rich_help_panel=_SHOW,
    ),
    as_json: bool = OUTPUT_JSON,
) -> None:
    """Find the best configuration of a model for a goal, and print the serve command for it.

    Searches the type of weights, cards per replica, replicas, batch, prompts and tokens of a step;
    every option that is given stays. All are forecast, the best are simulated on the traffic, and
    the answer is planned.
    """
    from gaudi_launch.cli.work_progress import work_progress
    from gaudi_launch.extensions.recommend.view import draw, show, show_saved, to_json

    if plot is not None:
        from gaudi_launch.core.base.plotting import check_picture

        check_picture(plot)
    if save is not None:
        cases.check_folder(save)
    case = cases.read(options, given, over_servers=True)
    with work_progress("recommend.working", quiet=as_json) as progress:
        found = cases.solve(case, progress)
    if plot is not None:
        draw(plot, found)
    saved = cases.save(found, given, save) if save is not None else ()
    if as_json:
        emit_json(to_json(found))
    else:
        show(found, plot, complete=everything)
    if saved and not as_json:
        show_saved(found, saved)
    elif save is not None and found.cluster is not None:
        say(text("recommend.not_saved"))
    # the page shows what would be possible
    if found.plan is None:
        raise typer.Exit(cases.UNMET)
