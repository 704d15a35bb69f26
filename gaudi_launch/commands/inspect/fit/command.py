"""``gaudi-launch fit``: numbers of cards for a model, context and concurrency."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.core.engines.registry import names_with_cards

app = CommandApp()


@app.command()
def fit(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, a hub ID, or a model with a profile."
    ),
    cards: str = typer.Option(
        "", "-n", "--cards", metavar="LIST", help="Numbers of cards to try: 1,2,4,8."
    ),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3, inf2.48xlarge... (default: this machine's, else gaudi2).",
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
    force: bool = typer.Option(
        False, "--force", help="Continue although the engine lacks the model's class."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Compute weights, KV cache, context and concurrency per number of cards, and the smallest
    number.

    The arithmetic is the engine's; values measured on a card (activations) are estimated. A model
    that does not fit is a result, not a failure: the exit code is 0, and smallest_n is null with
    --json.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.commands.inspect.fit import case as use_case
    from gaudi_launch.commands.inspect.fit.view import show, to_json
    from gaudi_launch.core.base.steps import step

    lengths = use_case.ServedLengths(length, requests, inputs, outputs)
    with step("screen.step_model"):
        result = use_case.fit(
            use_case.FitOptions(model, cards, accelerator, dtype, engine, lengths, force)
        )
    if as_json:
        emit_json(to_json(result))
    else:
        show(result)
