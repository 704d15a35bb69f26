"""Write a manual page for each command from the program's help.

    python scripts/man.py FOLDER    writes FOLDER/gaudi-launch.1, FOLDER/gaudi-launch-serve.1, ...

`man -M` or a package puts them where `man` finds them. They are made of the same help as
docs/commands.md, so nothing of them is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gaudi_launch.cli.help import HelpPage
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import set_language
from gaudi_launch.core.base.version import VERSION

TOP = Path(__file__).resolve().parents[1]
PROGRAM = "gaudi-launch"


def main() -> None:
    """Write the pages to the folder that is given."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: man.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    sys.path.insert(0, str(TOP / "scripts"))
    import reference

    set_language("en")
    helps = dict(reference.help_pages())
    meanings = reference.read("texts")["exit_codes"]
    codes = {int(code): str(meanings[code.name]["en"]) for code in ExitCode}
    made = {}
    for path, page in helps.items():
        name = "-".join((PROGRAM, *path.split()))
        related = [
            "-".join((PROGRAM, *other.split()))
            for other in helps
            if other.rpartition(" ")[0] == path and other != path
        ]
        lines = _page(name, page, codes, related)
        made[f"{name}.1"] = "\n".join(lines) + "\n"
    set_language(None)
    return made


def _page(name: str, page: HelpPage, codes: Mapping[int, str], related: list[str]) -> Iterator[str]:
    """Yield the lines of one page, in roff with the macros of man(7)."""
    first, *paragraphs = page.paragraphs
    yield f'.TH "{name.upper()}" "1" "" "{PROGRAM} {VERSION}" "User commands"'
    yield ".SH NAME"
    yield _escaped(f"{name} - {first.rstrip('.')}")
    yield ".SH SYNOPSIS"
    yield _escaped(page.usage)
    yield ".SH DESCRIPTION"
    yield _escaped(first)
    for paragraph in paragraphs:
        yield ".PP"
        yield _escaped(paragraph)
    for section in page.sections:
        if section.entries:
            yield f'.SH "{_escaped(section.title.upper())}"'
        for entry in section.entries:
            yield ".TP"
            yield f"\\fB{_escaped(entry.name.strip())}\\fR"
            yield _escaped(entry.text)
    if page.examples:
        yield ".SH EXAMPLES"
    for line, meaning in page.examples.items():
        yield ".TP"
        yield _escaped(meaning)
        yield f"\\fB{_escaped(line)}\\fR"
    yield ".SH EXIT STATUS"
    for code, meaning in codes.items():
        yield ".TP"
        yield f"\\fB{code}\\fR"
        yield _escaped(meaning.replace("`", "'"))
    yield ".SH SEE ALSO"
    others = related or [PROGRAM]
    yield ",\n".join(f".BR {other} (1)" for other in others if other != name)


def _escaped(text: str) -> str:
    """Return a text for roff: hyphens to copy, no control lines."""
    line = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    main()
