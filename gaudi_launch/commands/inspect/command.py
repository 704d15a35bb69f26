"""``gaudi-launch inspect``: one page about a model, by its folder or by the hub.

The weights on the hub are not fetched.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.record_options import ModelCommand
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.engines.entries import names_with_cards

app = CommandApp()


@app.command(cls=ModelCommand)
def inspect(
    model: str | None = typer.Argument(
        None,
        metavar="[MODEL]",
        help="A folder, a hub ID, a model with a profile, or a model class (default: each model "
        "with a profile, and the fewest cards for it).",
    ),
    cards: str = typer.Option(
        "", "-n", "--cards", metavar="LIST", help="Numbers of cards to try: 1,2,4,8."
    ),
    accelerator: str = typer.Option(
        "",
        "--machine",
        "--accelerator",
        metavar="MACHINE",
        help="A product (gaudi2, gaudi3, inf2.48xlarge...), a snapshot file or simulated:NAME "
        "(default: this machine's, else gaudi2).",
    ),
    length: str = typer.Option(
        "", "-l", "--max-model-len", metavar="N", help="Maximum of input plus output, e.g. 32k."
    ),
    requests: str = typer.Option(
        "", "-b", "--max-num-seqs", metavar="N", help="Concurrent requests."
    ),
    inputs: str = typer.Option("", "-i", "--input", metavar="RANGE", help="Input tokens: 64,32k."),
    outputs: str = typer.Option("", "-o", "--output", metavar="RANGE", help="Output tokens: 1,2k."),
    dtype: str = typer.Option("", "-d", "--dtype", metavar="TYPE", help="Only this data type."),
    engine: str = typer.Option(
        "", "--engine", metavar="ENGINE", help=", ".join(names_with_cards()) + "."
    ),
    revision: str = typer.Option(
        "", "--revision", metavar="REV", help="Branch, tag or commit on the hub."
    ),
    show_all: bool = typer.Option(
        False, "--all", help="Every fact, data type, engine release and reason."
    ),
    as_json: bool = JSON,
) -> None:
    """Show the cards that a model fits, the engine releases that run it, its sizes and missing
    files; without a model, which models fit.

    The arithmetic is the engine's, its lists are from its source; values measured on a card
    (activations) are estimated. Of a model on the hub only config.json and the headers of its
    weights are read. HF_ENDPOINT sets a mirror. A model that does not fit is a result: the exit
    code is 0, and smallest_n is null with --json.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.commands.inspect import case as use_case
    from gaudi_launch.commands.inspect.fit import InspectOptions, ServedLengths
    from gaudi_launch.commands.inspect.fitting import fitting
    from gaudi_launch.commands.inspect.view import list_to_json, show, show_list, to_json

    options = InspectOptions(
        model or "",
        cards,
        accelerator,
        dtype,
        engine,
        ServedLengths(length, requests, inputs, outputs),
        revision,
        complete=show_all or as_json,
    )
    if model is None:
        models = fitting(options)
        return emit_json(list_to_json(models)) if as_json else show_list(models, complete=show_all)
    with step("screen.step_model"):
        found = use_case.inspect(options)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found, complete=show_all)
