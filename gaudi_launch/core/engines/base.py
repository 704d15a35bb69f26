"""Code that engines share: settings as a command, and options that were given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from gaudi_launch.core.planning.engine_args import option_words
from gaudi_launch.core.planning.plan import Setting, variables_of
from gaudi_launch.core.planning.request import Request

_Rest = TypeVar("_Rest")


def options_of(settings: Sequence[Setting]) -> list[str]:
    """Return the options that are sent, as arguments, in the order of the settings."""
    argv: list[str] = []
    for setting in settings:
        if setting.kind == "option" and setting.sent:
            argv += option_words(setting.name, setting.value)
    return argv


def sent_variables(settings: Sequence[Setting]) -> dict[str, str]:
    """Return the variables that we set for the engine's process."""
    return variables_of([setting for setting in settings if setting.sent])


def given(request: Request, fields: Iterable[tuple[str, _Rest]]) -> list[_Rest]:
    """Return the value paired with each field of the request that the user gave."""
    return [rest for name, rest in fields if getattr(request, name) not in (None, False)]
