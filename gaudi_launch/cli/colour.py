"""Colours for text that is printed without rich: help and errors."""

from __future__ import annotations

import os
from typing import TextIO

BOLD = "1"
NAME = "36"
ERROR = "1;31"


def is_coloured(stream: TextIO) -> bool:
    """Return whether a stream shows colours.

    That is a terminal that is not dumb, without NO_COLOR.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    return stream.isatty()


def painted(text: str, code: str, *, coloured: bool) -> str:
    """Return the text between the escape sequences of a colour.

    Unchanged where there are none.
    """
    if not coloured or not text:
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
