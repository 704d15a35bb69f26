"""Quote arguments for systemd units, by systemd.syntax(7) and systemd.service(5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaudi_launch.render.text import on_one_line

# characters that need no quotes
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@^")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}


def quoted(word: str) -> str:
    """Return one value for Environment= and the like.

    It has C escapes and doubled specifiers (%).
    """
    if word and all(mark in _SAFE for mark in word):
        return word
    return '"' + "".join(_ESCAPES.get(mark) or _other(mark) for mark in word) + '"'


def _other(mark: str) -> str:
    if ord(mark) < 32 or ord(mark) == 127:
        return f"\\x{ord(mark):02x}"
    return mark


def command(words: Sequence[str]) -> str:
    """Return arguments for ExecStart=: as `quoted`, and variables ($) doubled."""
    return " ".join(quoted(word).replace("$", "$$") for word in words)


def environment(env: Mapping[str, str]) -> list[str]:
    """Return Environment= lines, sorted by name."""
    return [f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(env.items())]


def description(words: str) -> str:
    """Return a line that is text only: no specifiers, one line."""
    return on_one_line(words).replace("%", "%%").rstrip("\\")
