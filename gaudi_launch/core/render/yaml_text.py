"""YAML that every reader understands alike: stable text, unambiguous strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from gaudi_launch.core.render.text import on_one_line

# Readers disagree on what is a number or a boolean (1e3, 0o17, y, on): only texts that no reader
# could misread are without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nil"))

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Writes without anchors (kubectl reads them, people and patches do not)."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    if "\n" in value:
        style: str | None = "|"
    elif _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        style = None
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(document: Any) -> str:
    """Return one document, keys in the order given, without a ``---`` line."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=1 << 20,
    )
    return text


def documents(parts: Iterable[str], header: Sequence[str] = ()) -> str:
    """Return the documents of one file after a header of comment lines.

    A line break in the header starts a new line. YAML allows no control characters, in comments
    either (YAML 1.2.2, 5.1 Character Set).
    """
    comments = [f"# {on_one_line(line)}".rstrip() for text in header for line in text.splitlines()]
    return "\n".join([*comments, *(f"---\n{part.rstrip()}" for part in parts)]) + "\n"
