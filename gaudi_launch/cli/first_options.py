"""The options that a short help shows; ``--help-all`` shows the others too."""

from __future__ import annotations

_SHAPE = ("-n", "-l", "-i", "-o", "-d")
_RENDER = (*_SHAPE, "--engine", "--image", "-p", "--machine", "--to")

_FIRST: dict[str, tuple[str, ...]] = {
    "serve": (*_SHAPE, "--engine", "-p", "--name", "--detach", "--in"),
    "plan": (*_SHAPE, "-b", "--engine", "--machine", "--all", "--json"),
}


def first_options(path: str) -> tuple[str, ...]:
    """Return the spellings of the options that matter most for a command.

    none: its help shows all.
    """
    return _FIRST.get(path, ())
