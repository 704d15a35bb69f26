"""``gaudi-launch support``: engine versions that run a model.

It also shows since when, and on how many cards.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def support(
    model: str = typer.Argument(
        "", metavar="[MODEL]", help="A folder, a hub ID, a model with a profile, or a model class."
    ),
    engine: str = typer.Option(
        "",
        "--engine",
        metavar="ENGINE",
        help="Only this engine or version: vllm-gaudi, vllm-gaudi@0.26.",
    ),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3... (default: this machine's, else gaudi2).",
    ),
    python: str = typer.Option("", "--python", metavar="PATH", help="The engine's interpreter."),
    list_versions: bool = typer.Option(
        False, "--list", help="Show the engine versions with facts instead."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show for each engine version whether it runs the model, the fewest cards, validation and
    evidence.

    The lists were read from the engines' own source. A version that does not run the model is an
    answer: the exit status stays 0.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.commands.inspect.support import case as use_case
    from gaudi_launch.commands.inspect.support.view import list_to_json, show, show_list, to_json
    from gaudi_launch.core.base.errors import ExitCode, LaunchError
    from gaudi_launch.core.base.steps import step

    if list_versions:
        chosen = use_case.selected(engine)
        if as_json:
            emit_json(list_to_json(chosen))
        else:
            show_list(chosen)
        return
    if not model:
        raise LaunchError("support.no_model", ExitCode.USAGE)
    with step("screen.step_model"):
        result = use_case.support(use_case.SupportOptions(model, engine, accelerator, python))
    if as_json:
        emit_json(to_json(result))
    else:
        show(result)
