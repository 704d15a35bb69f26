"""``gaudi-launch help``: which command answers which question.

``help COMMAND`` is that command's help.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def help(
    ctx: typer.Context,
    words: list[str] | None = typer.Argument(
        None, metavar="[COMMAND]...", help="A command: 'help cache prune'."
    ),
    as_json: bool = typer.Option(False, "--json", help="The questions as one JSON object."),
) -> None:
    """List questions with the commands that answer them, or show the help of one command."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.help import shown_in
    from gaudi_launch.commands.help.view import questions_json, show_questions

    if words:
        typer.echo(shown_in(ctx.find_root(), words))
    elif as_json:
        emit_json(questions_json())
    else:
        show_questions()
