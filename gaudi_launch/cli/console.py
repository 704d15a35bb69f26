"""The only module that prints: JSON for programs, text and tables for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from gaudi_launch.cli.streams import folds, is_utf
from gaudi_launch.cli.wrapping import folded

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

# cells of the label in front of a value
LABEL_WIDTH = 10


def known(value: object, form: str = "{}", unknown: str = "-") -> str:
    """Return a value in a form of `str.format`; ``unknown`` instead of None."""
    if value is None:
        return unknown
    return form.format(value)


def sentences(*parts: str) -> str:
    """Return sentences as one text, without empty ones.

    No blank follows a Chinese full stop.
    """
    shown = ""
    for part in filter(None, parts):
        if shown and not shown.endswith("。"):
            shown += " "
        shown += part
    return shown


def error_document(id: str, sentence: str, code: int) -> dict[str, Any]:
    """Return the ``error`` object of ``--json`` output for an error without values."""
    return {"id": id, "message": sentence, "exit_code": int(code), "values": {}}


def emit_json(document: dict[str, Any]) -> None:
    """Print one JSON object on stdout; the caller puts ``"schema": 1`` in it."""
    print(json.dumps(document, ensure_ascii=not is_utf(sys.stdout), indent=2))


def emit_json_line(document: dict[str, Any]) -> None:
    """Print one JSON object as a line on stdout, without a delay."""
    print(json.dumps(document, ensure_ascii=not is_utf(sys.stdout)), flush=True)


def give_up(stream: TextIO) -> None:
    """Discard what is still written to a stream whose reader went away."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def give_up_broken() -> None:
    """Give up those of stdout and stderr whose reader went away."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            give_up(stream)
        else:
            if _is_broken(stream):
                give_up(stream)


def _is_broken(stream: TextIO) -> bool:
    """Return whether the other end of a stream is closed.

    poll(2): POLLERR for a pipe without a reader.
    """
    import select

    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def say(line: str) -> None:
    """Print a sentence on stderr; a closed reader does not end the running task."""
    from gaudi_launch.cli.status_line import status_line

    with status_line.hidden():
        try:
            print(folded(line, sys.stderr), file=sys.stderr, flush=True)
        except BrokenPipeError:
            give_up(sys.stderr)


def can_show(marks: str, out: Console) -> bool:
    """Report whether a console's encoding has these characters (LANG=C has not)."""
    try:
        marks.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def size_text(count: int) -> str:
    """Return a number of bytes in MiB, or in GiB from 1 GiB on."""
    if count >= 2**30:
        return f"{count / 2**30:.2f} GiB"
    return f"{count / 2**20:.1f} MiB"


def console(stderr: bool = False) -> Console:
    """Return a rich console that respects NO_COLOR, pipes and COLUMNS.

    Text is shown as it is, without markup. A terminal, and a pipe with COLUMNS, gets it folded,
    except lines that people copy (``soft_wrap=True``). Progress and logs use ``stderr=True``.
    """
    from rich.console import Console
    from rich.text import Text

    from gaudi_launch.cli.prose import Prose

    # in a pipe rich would fold at 80 columns; programs grep unbroken lines
    stream = sys.stderr if stderr else sys.stdout
    is_folded = folds(stream)
    width = None if is_folded else 200

    class Ours(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """Fold Chinese between characters, in sentences and in the cells of tables."""
            if isinstance(renderable, str):
                how = options or self.options
                renderable = self.render_str(renderable, highlight=how.highlight, markup=how.markup)
            if type(renderable) is Text:
                renderable = Prose.of(renderable)
            return super().render(renderable, options)

        def on_broken_pipe(self) -> None:
            """Let the command decide what a closed reader means."""
            raise BrokenPipeError

    return Ours(
        stderr=stderr,
        width=width,
        soft_wrap=not is_folded,
        markup=False,
        highlight=False,
        emoji=False,
    )


def labelled(label: str, value: Text, out: Console) -> list[Text]:
    """Return a value as lines below a label, folded at blanks.

    From the second line on it is to the right of the label.
    """
    from rich.cells import set_cell_size
    from rich.text import Text

    return beside(Text(set_cell_size(label, LABEL_WIDTH), style="dim"), value, out)


def beside(label: Text, value: Text, out: Console) -> list[Text]:
    """Return a value at the right of a label, folded at blanks.

    Where nothing folds, it is one line.
    """
    from rich.text import Text

    from gaudi_launch.cli.prose import Prose

    room = max(1, out.width - label.cell_len - 1)
    folded = list(value.split(allow_blank=True))
    if not out.soft_wrap:
        folded = list(Prose.of(value).wrap(out, room))
    lines = []
    for number, line in enumerate(folded):
        line.rstrip()
        first = label if number == 0 else Text(" " * label.cell_len)
        lines.append(Text.assemble(first, " ", line))
    return lines


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> Any:
    """Return a plain table; ``right`` are the numbers of right-aligned columns.

    On a terminal too narrow for its longest parts it is a block of labelled lines for each row.
    """
    from gaudi_launch.cli.narrow_table import NarrowTable

    return NarrowTable(title, columns, [tuple(row) for row in rows], right)
