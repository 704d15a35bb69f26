"""The pages of the documentation, for ``gaudi-launch help TOPIC``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import language

INDEX = "index"
# an entry of the index: [title](file) (`name`): contents
_ENTRY = re.compile(r"(?m)^- \[[^]]+\]\(([\w-]+)\.md\)(?: ?[(（]`.+?`[)）][:：]? ?(.*))?$")
_CHINESE = "_zh"


@dataclass(frozen=True)
class DocsPage:
    """One page of the documentation, in the language in which it exists.

    ``about`` is what the index states of it.
    """

    name: str
    title: str
    about: str
    language: str
    path: Path
    text: str


def pages() -> tuple[DocsPage, ...]:
    """Return the pages in the order of the index, each in the language in force."""
    index = _read(INDEX)
    entries = [(_without_language(name), about) for name, about in _ENTRY.findall(index.text)]
    return (index, *(_read(name, about) for name, about in entries))


def find(topic: str) -> DocsPage:
    """Return the page of a topic: a name of the index, or a file name of the folder.

    Raises LaunchError (USAGE) for an unknown topic.
    """
    wanted = _without_language(topic.lower().removesuffix(".md"))
    known = pages()
    for page in known:
        if page.name == wanted:
            return page
    raise LaunchError(
        "docs.unknown",
        ExitCode.USAGE,
        found=topic,
        known=", ".join(page.name for page in known),
    )


def _without_language(name: str) -> str:
    return name.removesuffix(_CHINESE)


def _read(name: str, about: str = "") -> DocsPage:
    """Read a page, in Chinese where that is in force and exists."""
    path = paths.docs_dir() / f"{name}{_CHINESE}.md"
    chosen = "zh"
    if language() != "zh" or not path.is_file():
        path = paths.docs_dir() / f"{name}.md"
        chosen = "en"
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].lstrip("# ")
    return DocsPage(name, title, about, chosen, path, text)
