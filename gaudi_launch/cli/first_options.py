"""The options that a short help shows; ``--help-all`` shows the others too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.base.reader import beside


def every_first_option() -> Mapping[str, Sequence[str]]:
    """Return the spellings by the path of a command; first_options.json has them."""
    found: Mapping[str, Sequence[str]] = beside(__file__)
    return found


def first_options(path: str) -> Sequence[str]:
    """Return the spellings of the options that matter most for a command.

    none: its help shows all.
    """
    return every_first_option().get(path, ())


def path_of(context: Any) -> str:
    """Return a command's name without the program's: ``cache list``.

    Return "" for the program.
    """
    names: list[str] = []
    # not `command_path`, which reads the parameters that this is needed for
    while context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)
