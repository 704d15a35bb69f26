"""``gaudi-launch help``: questions, help of commands, pages, a search."""

from __future__ import annotations

import logging

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.doc_pages import DocsPage, find, pages
from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text

_log = logging.getLogger(__name__)

app = CommandApp()


@app.command()
def help(
    ctx: typer.Context,
    words: list[str] | None = typer.Argument(
        None,
        metavar="[COMMAND|TOPIC|WORD]...",
        help="A command, a page ('stack.md' where a command has its name), or a term to find.",
    ),
    names: bool = typer.Option(False, "--list", help="List the pages with their titles."),
    as_json: bool = typer.Option(False, "--json", help="What is shown, as one JSON object."),
) -> None:
    """List questions with the commands that answer them; show the help of a command, a page of the
    documentation, or the commands and pages that mention a term.

    A page is text in a terminal, and Markdown in a pipe.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.help import shown_in
    from gaudi_launch.commands.help import page_view, view
    from gaudi_launch.commands.help.search import search

    if names and as_json:
        emit_json(page_view.list_json(pages()))
    elif names:
        page_view.show_list(pages())
    elif not words and as_json:
        emit_json(view.questions_json())
    elif not words:
        view.show_questions()
    elif words[0] in COMMANDS and not as_json:
        typer.echo(shown_in(ctx.find_root(), words))
        if _page(words) is not None:
            typer.echo("\n" + text("questions.page_too", page=f"{words[0]}.md"))
    elif (page := _page(words)) is not None and as_json:
        emit_json(page_view.page_json(page))
    elif page is not None:
        page_view.show_page(page)
    elif (found := search(" ".join(words))).is_empty:
        # the error of an unknown command, with the nearest one
        shown_in(ctx.find_root(), words)
    elif as_json:
        emit_json(view.found_json(found))
    else:
        view.show_found(found)


def _page(words: list[str]) -> DocsPage | None:
    """Return the page that one argument names, if any."""
    if len(words) != 1:
        return None
    try:
        return find(words[0])
    except LaunchError as error:
        _log.debug("no page has this name: %s", error)
        return None
