"""The positional arguments of a command with launch options: at most the model.

They are never part of a range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError

# options whose value is written with commas, by their metavar
_WITH_COMMAS = ("RANGE", "LIST", "BATCH,LEN")
_FIGURES = re.compile(r"[.,]*[0-9][0-9.,]*")


@dataclass(frozen=True)
class _Given:
    """An option as typed, with its value and the figures after it.

    The figures have no option.
    """

    name: str
    value: str
    stray: tuple[str, ...] = ()

    @property
    def joined(self) -> str:
        """Return the value with the figures after it, as one list."""
        parts = [part.strip(",") for part in (self.value, *self.stray)]
        return ",".join(part for part in parts if part)


def only_model(
    strays: Sequence[str], *, given: str | None, typed: Sequence[str], options: Mapping[str, str]
) -> str:
    """Return the model that the only positional argument names.

    ``given``: the value of -w. ``typed``: the arguments before ``--``. ``options``: each spelling
    with its metavar, "" for a switch. Raises LaunchError (USAGE) for figures, for a second
    argument, and in addition to -w.
    """
    for stray in strays:
        if _FIGURES.fullmatch(stray):
            _refuse_figures(stray, typed, options)
    if given is not None:
        raise LaunchError("plan.stray", ExitCode.USAGE, found=strays[0], model=given)
    if len(strays) > 1:
        raise LaunchError("plan.stray", ExitCode.USAGE, found=strays[1], model=strays[0])
    return strays[0]


def _refuse_figures(stray: str, typed: Sequence[str], options: Mapping[str, str]) -> None:
    owner = _owner(stray, typed, options)
    if owner is None:
        raise LaunchError("plan.stray_figures", ExitCode.USAGE, found=stray)
    meant = f"{owner.name} {owner.joined}"
    raise LaunchError("plan.stray_range", ExitCode.USAGE, found=stray, meant=meant)


def _owner(stray: str, typed: Sequence[str], options: Mapping[str, str]) -> _Given | None:
    """Return the last list option before a stray argument, with the figures after it."""
    last: _Given | None = None
    reached = False
    at = 0
    while at < len(typed):
        word = typed[at]
        name, equals, value = word.partition("=")
        at += 1
        if word.startswith("-") and options.get(name):
            if reached:
                break
            if not equals:
                value = typed[at] if at < len(typed) else ""
                at += 1
            if options[name] in _WITH_COMMAS:
                last = _Given(name, value)
        elif _FIGURES.fullmatch(word):
            reached = reached or word == stray
            if last is not None:
                last = _Given(last.name, last.value, (*last.stray, word))
    return last
