"""``gaudi-launch inspect``: facts of a model, by its folder or by the hub.

The weights on the hub are not fetched.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def inspect(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, or a hub ID such as Qwen/Qwen2-72B-Instruct."
    ),
    revision: str = typer.Option("", "--revision", help="Branch, tag or commit on the hub."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Read a model: architecture, parameters, layers, heads, experts, context, data type,
    missing files.

    For a model on the hub only config.json and the headers of its weights are read. HF_ENDPOINT
    sets a mirror.
    """
    from gaudi_launch.commands.inspect import case as use_case
    from gaudi_launch.commands.inspect.view import show
    from gaudi_launch.core.base.steps import step

    with step("screen.step_model"):
        found = use_case.inspect(model, revision or None)
    show(found, as_json)
