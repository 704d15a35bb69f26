"""Write an engine's argument list; `engine_argument` reads it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gaudi_launch.core.planning.engine_argument import (
    Argument,
    as_object,
    find_option,
    read_words,
    with_following,
)
from gaudi_launch.core.planning.option_table import GENERIC, OptionTable

_VLLM_MODULE = "vllm.entrypoints.cli.main"


@dataclass(frozen=True)
class EngineArgs:
    """An engine's argument list: fixed beginning, our options, the user's part.

    The user's part is unchanged. The last of several repeats counts, so the user's part wins over
    ours. ``file`` is what the engine reads first, from the user's --config FILE, outside of the
    command. ``tail``: options of a start script that puts the user's arguments between its options
    (reference tuning); none of them is in the user's part. Every change returns a new list.
    """

    table: OptionTable = GENERIC
    head: tuple[str, ...] = ()
    ours: tuple[Argument, ...] = ()
    user: tuple[Argument, ...] = ()
    tail: tuple[Argument, ...] = ()
    file: tuple[Argument, ...] = ()

    @property
    def every(self) -> tuple[Argument, ...]:
        """Return all arguments, in the order in which the engine reads them."""
        return (*self.file, *self.ours, *self.user, *self.tail)

    @property
    def user_words(self) -> tuple[str, ...]:
        """Return the user's part as it was written."""
        return tuple(word for argument in self.user for word in argument.words)

    def to_argv(self) -> tuple[str, ...]:
        """Return the list as command-line arguments."""
        written = (*self.ours, *self.user, *self.tail)
        return (*self.head, *(word for argument in written for word in argument.words))

    def canonical(self, name: str) -> str:
        """Return an option's long name with dashes for any spelling.

        Spellings are ``-tp``, ``--no-x``, ``--a_b``.
        """
        (found,) = read_words((name,), self.table)
        return found.name

    def given(self, *names: str) -> tuple[Argument, ...]:
        """Return the arguments of these options, in order."""
        wanted = {self.canonical(name) for name in names}
        return tuple(argument for argument in self.every if argument.name in wanted)

    def has(self, *names: str) -> bool:
        """Return True if one of these options is in the list, in the given form.

        Forms are ``--x`` and ``--no-x``. Of a pair only the last one counts.
        """
        for name in names:
            (wanted,) = read_words((name,), self.table)
            found = self.given(wanted.name)
            if found and found[-1].on == wanted.on:
                return True
        return False

    def last(self, name: str) -> str | None:
        """Return the effective value: "" for a bare option, None for an absent one.

        Of several values the first; of ``--option.key value`` all keys as the JSON object that the
        engine makes.
        """
        found = self.given(name)
        if not found:
            return None
        return as_object(found) or found[-1].value

    def in_force(self, name: str) -> tuple[str, str | None]:
        """Return an option as a plan shows it: the effective name and value.

        None is a bare flag. Of an option whose repeats add up, all values.
        """
        found = self.given(name)
        last = found[-1]
        by_key = as_object(found)
        if by_key:
            return last.name, by_key
        if last.option.appends:
            return last.shown, shlex.join(value for argument in found for value in argument.values)
        return last.shown, last.text

    def with_option(self, name: str, value: str | None = None) -> EngineArgs:
        """Return the list with our option set to this value.

        It stays in its old place, or is added after our last option. An option that the user wrote
        is not changed.
        """
        canonical = self.canonical(name)
        if any(argument.name == canonical for argument in (*self.file, *self.user)):
            return self.without(name)
        words = option_words(name, value)
        fresh = _written(words, self.table)
        rest = self.without(name)
        for place, argument in enumerate(self.ours):
            if argument.name == canonical:
                if not argument.attached:
                    # in the spelling of the list
                    fresh = _written((argument.words[0], *words[1:]), self.table)
                return replace(rest, ours=(*rest.ours[:place], fresh, *rest.ours[place:]))
        return replace(rest, ours=(*rest.ours, fresh))

    def without(self, *names: str, of_user: bool = False) -> EngineArgs:
        """Return the list without our options of these names.

        ``of_user``: without the user's too.
        """
        wanted = {self.canonical(name) for name in names}

        def kept(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
            return tuple(argument for argument in arguments if argument.name not in wanted)

        rest = replace(self, ours=kept(self.ours), tail=kept(self.tail))
        if of_user:
            return replace(rest, user=kept(self.user))
        return rest

    def with_values(self, name: str, value: str) -> EngineArgs:
        """Return the list with every value of an option replaced.

        Each spelling and both parts are changed. Meant for values that the surroundings of an
        engine decide, such as the address inside a container.
        """
        canonical = self.canonical(name)

        def changed(argument: Argument) -> Argument:
            if argument.name == canonical:
                return _with_value(argument, value)
            return argument

        ours, user, tail = (tuple(map(changed, part)) for part in (self.ours, self.user, self.tail))
        return replace(self, ours=ours, user=user, tail=tail)


NO_ARGS = EngineArgs()


def option_words(name: str, value: str | None) -> tuple[str, ...]:
    """Return an option as arguments; one whose value is None is a bare flag."""
    if value is None:
        return (name,)
    return (name, value)


def engine_args(
    *,
    table: OptionTable = GENERIC,
    head: Sequence[str] = (),
    ours: Iterable[tuple[str, str | None]] = (),
    user: Sequence[str] = (),
    file: Sequence[str] = (),
    place: str = "",
) -> EngineArgs:
    """Return an argument list made of our options and the user's arguments.

    Ours that the user wrote are left out. So are ours with another value in ``file``, the options
    of the user's own file: the engine would take ours.

    ``place`` is our option after which a start script puts the user's arguments. Ours before it
    stay, as the script sends them twice: the user's come later and count.
    """
    made = EngineArgs(
        table, tuple(head), (), read_words(tuple(user), table), file=read_words(tuple(file), table)
    )
    in_file = {argument.name: argument.text for argument in made.file}
    taken = {argument.name for argument in made.user}
    before: list[Argument] = []
    after: list[Argument] = []
    part = before
    for name, value in ours:
        fresh = _written(option_words(name, value), table)
        in_script = bool(place) and part is before
        differs = in_file.get(fresh.name, fresh.text) != fresh.text
        if in_script or (fresh.name not in taken and not differs):
            part.append(fresh)
        if name == place and taken:
            part = after
    return replace(made, ours=tuple(before), tail=tuple(after))


def split_argv(
    argv: Sequence[str], *, table: OptionTable = GENERIC, user: Sequence[str] = ()
) -> EngineArgs:
    """Return a finished command as its parts.

    ``user`` are the arguments in it that the user wrote. The head ends before the first option that
    is not ``-m MODULE``.
    """
    words, own = tuple(argv), tuple(user)
    at = _last_place(words, own)
    words, rest = words[:at], words[at + len(own) :]
    start = 0
    while start < len(words):
        if words[start] == "-m":
            start += 2
        elif find_option(words[start], table) is None:
            start += 1
        else:
            break
    parts = (read_words(part, table) for part in (words[start:], own, rest))
    return EngineArgs(table, words[:start], *parts)


def positional_model(argv: Sequence[str]) -> str | None:
    """Return the model of ``vllm serve MODEL``; None where an option names it.

    Source: vllm-project/vllm 0.32.0:vllm/entrypoints/cli/main.py.
    """
    for before, word, model in zip(argv, argv[1:], argv[2:], strict=False):
        is_vllm = before == _VLLM_MODULE or PurePosixPath(before).name == "vllm"
        if word == "serve" and is_vllm and not model.startswith("-"):
            return model
    return None


def _last_place(words: tuple[str, ...], part: tuple[str, ...]) -> int:
    """Return the last position at which a part of some arguments begins."""
    for at in range(len(words) - len(part), -1, -1):
        if words[at : at + len(part)] == part:
            return at
    raise ValueError(f"{part} is not in the command")


def _written(words: tuple[str, ...], table: OptionTable) -> Argument:
    """Return one of our options with its value, whatever the value's form."""
    option = find_option(words[0], table) or Argument(words[0], words[:1])
    return with_following(option, words)


def _with_value(argument: Argument, value: str) -> Argument:
    if argument.attached:
        word = argument.words[0]
        equals = word.find("=")
        if equals > 0:
            start = word[: equals + 1]
        else:
            start = word[: len(word) - len(argument.value)]
        return replace(argument, words=(start + value,), values=(value,))
    return replace(argument, words=(argument.words[0], value), values=(value,))
