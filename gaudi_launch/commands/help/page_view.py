"""A page of the documentation, and the list of topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from gaudi_launch.cli.console import console
from gaudi_launch.cli.doc_pages import DocsPage
from gaudi_launch.cli.streams import folds

# lines longer than this are hard to read
_WIDEST = 110
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def show_page(page: DocsPage) -> None:
    """Print a page: laid out where lines are folded, else as Markdown."""
    text = _COMMENT.sub("", page.text)
    if not folds(sys.stdout):
        print(text, end="")
        return
    from rich.theme import Theme

    from gaudi_launch.commands.help.markdown_page import MarkdownPage

    out = console()
    # rich's own styles of code have a black background, unreadable on a light terminal
    theme = Theme({"markdown.code": "cyan", "markdown.block_quote": "none"})
    with out.use_theme(theme), out.capture() as shown:
        page_text = MarkdownPage(text, hyperlinks=False, code_theme="ansi_dark")
        out.print(page_text, width=min(out.width, _WIDEST))
    # rich fills each line with blanks
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))


def show_list(pages: Sequence[DocsPage]) -> None:
    """Print the topics with their titles, one in a line."""
    widest = max(len(page.name) for page in pages)
    for page in pages:
        print(f"{page.name.ljust(widest)}  {page.title}")


def list_json(pages: Sequence[DocsPage]) -> dict[str, Any]:
    """Return the topics in the order of the index."""
    return {"schema": 1, "pages": [_facts(page) for page in pages]}


def page_json(page: DocsPage) -> dict[str, Any]:
    """Return a page with its Markdown."""
    return {"schema": 1, "page": {**_facts(page), "text": page.text}}


def _facts(page: DocsPage) -> dict[str, str]:
    return {
        "name": page.name,
        "title": page.title,
        "language": page.language,
        "path": str(page.path),
    }
