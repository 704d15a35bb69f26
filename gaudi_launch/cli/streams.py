"""Text for terminals that show only ASCII.

Drawing characters are replaced, and every character can be encoded.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping
from functools import partial
from io import TextIOWrapper
from typing import TextIO

_HANDLER = "gaudi_launch.plain"
_PLAIN_LOCALES = ("C", "POSIX")
_LIKE = {
    **dict.fromkeys("─━╌╍┄┅┈┉═–‐‑−", "-"),
    **dict.fromkeys("│┃┆┇┊┋╎╏║", "|"),
    **dict.fromkeys("█▇▆▅▄▃▂▁▉▊▋▌▍▎▏▐■", "#"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    "▓": "=",
    "▒": "+",
    "░": ":",
    "·": ".",
    "•": "*",
    "→": "->",
    "←": "<-",
    "…": "...",
    "—": "--",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "✓": "v",
    "✗": "x",
    "µ": "u",
    "°": " deg",
    "\u00a0": " ",
}


def prepare_streams(environment: Mapping[str, str], *, english: bool) -> None:
    """Let stdout and stderr accept any text.

    Only ASCII where the terminal or the locale requires it. ``english``: the effective language.
    Chinese keeps the stream's encoding.
    """
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, TextIOWrapper):
            continue
        if english and asks_for_ascii(environment, is_terminal=stream.isatty()):
            stream.reconfigure(encoding="ascii", errors=_handler_for(stream))
        else:
            stream.reconfigure(errors=_handler_for(stream))


def asks_for_ascii(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Report whether the locale is C, or the terminal is dumb.

    An encoding that the user chose is kept.
    """
    if environment.get("PYTHONIOENCODING") or environment.get("PYTHONUTF8") == "1":
        return False
    locale = next(
        (environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), ""
    )
    return locale in _PLAIN_LOCALES or (is_terminal and environment.get("TERM") == "dumb")


def shows(stream: TextIO, text: str) -> bool:
    """Report whether a stream's encoding has all characters of a text."""
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def folds(stream: TextIO) -> bool:
    """Report whether lines are folded: on a terminal, and with COLUMNS in a pipe."""
    return stream.isatty() or os.environ.get("COLUMNS", "").isdigit()


def is_utf(stream: TextIO) -> bool:
    """Report whether a stream takes every character."""
    return (stream.encoding or "").lower().replace("_", "-").startswith("utf")


def _handler_for(stream: TextIO) -> str:
    """Return the error handler for characters that the encoding lacks.

    It writes UTF-8 where the encoding was UTF-8, else escapes.
    """
    if is_utf(stream):
        return _HANDLER
    return f"{_HANDLER}.escaped"


def _replaced(encoding: str, others: str, error: UnicodeError) -> tuple[str | bytes, int]:
    """Return look-alikes of drawing characters, and the others in this encoding."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    pieces = [
        _like(character) or character.encode(encoding, others)
        for character in error.object[error.start : error.end]
    ]
    return b"".join(pieces), error.end


def _like(character: str) -> bytes:
    """Return the ASCII form of a drawing character, b"" for another character."""
    if character in _LIKE:
        return _LIKE[character].encode("ascii")
    if "\u2500" <= character <= "\u257f":
        return b"+"
    # the turning dots of a step
    if "\u2800" <= character <= "\u28ff":
        return b"*"
    return b""


codecs.register_error(_HANDLER, partial(_replaced, "utf-8", "surrogateescape"))
codecs.register_error(f"{_HANDLER}.escaped", partial(_replaced, "ascii", "backslashreplace"))
