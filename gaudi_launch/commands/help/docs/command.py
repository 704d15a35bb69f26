"""``gaudi-launch docs``: the pages of the documentation, without a network."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def docs(
    topic: str = typer.Argument(
        "index", metavar="[TOPIC]", help="A page: 'docs install'; --list names all."
    ),
    names: bool = typer.Option(False, "--list", help="List the topics with their titles."),
    as_json: bool = typer.Option(False, "--json", help="The page or the list as one JSON object."),
) -> None:
    """Show a page of the documentation: as text in a terminal, as Markdown in a pipe."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.doc_pages import find, pages
    from gaudi_launch.commands.help.docs.view import list_json, page_json, show_list, show_page

    if names and as_json:
        emit_json(list_json(pages()))
    elif names:
        show_list(pages())
    elif as_json:
        emit_json(page_json(find(topic)))
    else:
        show_page(find(topic))
