"""EngineArgs: the one reader and writer of an engine's argument list.

Reads as vLLM's FlexibleArgumentParser does (HabanaAI/vllm-fork@aice/v1.22.0:vllm/utils.py), which
is argparse with ``_`` for ``-`` in long names, ``--option.key value`` for JSON options, and
abbreviations of a long name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from gaudi_launch.core.planning.option_table import GENERIC, UNKNOWN, EngineOption, OptionTable

# argparse: arguments of this form are values, as long as no option has it
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+", re.ASCII)
_VLLM_MODULE = "vllm.entrypoints.cli.main"
_MOST_VALUES = {"0": 0, "1": 1, "?": 1}


@dataclass(frozen=True)
class Argument:
    """One option with its values, or an argument that belongs to no option.

    In the latter case ``name`` is the argument itself. ``words`` are as written. ``key`` is the
    part after the dot of ``--option.key``. ``attached``: the value is in the same argument
    (``--name=value``, ``-O3``). ``on`` is False for the ``--no-`` form of a pair. ``option`` is
    `UNKNOWN` where the table does not have it.
    """

    name: str
    words: tuple[str, ...]
    values: tuple[str, ...] = ()
    key: str = ""
    on: bool = True
    attached: bool = False
    positional: bool = False
    option: EngineOption = UNKNOWN

    @property
    def value(self) -> str:
        """Return the first value, "" without one."""
        return next(iter(self.values), "")

    @property
    def shown(self) -> str:
        """Return the name that a plan shows: the long one of the form that was written.

        It has dashes.
        """
        if self.on:
            return self.name
        return self.option.off[0]

    @property
    def text(self) -> str | None:
        """Return the values as one text; None for a bare flag."""
        if not self.values and not self.attached:
            return None
        if len(self.values) == 1:
            return self.values[0]
        return shlex.join(self.values)


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
        return _as_object(found) or found[-1].value

    def in_force(self, name: str) -> tuple[str, str | None]:
        """Return an option as a plan shows it: the effective name and value.

        None is a bare flag. Of an option whose repeats add up, all values.
        """
        found = self.given(name)
        last = found[-1]
        by_key = _as_object(found)
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
        elif _find(words[start], table) is None:
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


@lru_cache(maxsize=512)
def read_words(words: tuple[str, ...], table: OptionTable = GENERIC) -> tuple[Argument, ...]:
    """Return command-line arguments as records: each option with its values."""
    found: list[Argument] = []
    at = 0
    while at < len(words):
        if words[at] == "--":
            # argparse: everything after it is a separate value
            found += [Argument(word, (word,), positional=True) for word in words[at:]]
            break
        option = _find(words[at], table)
        if option is None:
            found.append(Argument(words[at], (words[at],), positional=True))
            at += 1
            continue
        end = at + 1 + _values_after(option, words[at + 1 :], table)
        found.append(_with_following(option, words[at:end]))
        at = end
    return tuple(found)


def _with_following(option: Argument, words: tuple[str, ...]) -> Argument:
    if option.attached:
        return replace(option, words=words)
    return replace(option, words=words, values=words[1:])


def _values_after(option: Argument, following: Sequence[str], table: OptionTable) -> int:
    """Return the number of arguments after an option that are its values."""
    if option.attached:
        return 0
    if option.key:
        # --option.key takes the next argument whatever its form
        return min(1, len(following))
    most = _MOST_VALUES.get(option.option.count, len(following))
    taken = 0
    for word in following[:most]:
        if word == "--" or _find(word, table) is not None:
            break
        taken += 1
    return taken


def _find(word: str, table: OptionTable) -> Argument | None:
    """Return the option of an argument, without the values after it.

    Return None for a value.
    """
    if not word.startswith("-") or word == "-":
        return None
    if word.startswith("--"):
        return _find_long(word, table)
    return _find_short(word, table)


def _find_long(word: str, table: OptionTable) -> Argument | None:
    written, values = _at_equals(word)
    name, _, key = written.partition(".")
    name = name.replace("_", "-")
    spelling = _full_name(name, table)
    if spelling is None and " " in written:
        return None
    found = replace(_argument(spelling or name, word, table), values=values, attached=bool(values))
    if found.option.count == "0":
        return found
    return replace(found, key=key)


def _at_equals(word: str) -> tuple[str, tuple[str, ...]]:
    """Return the part before ``=``, and the value after it; no value without ``=``."""
    written, equals, value = word.partition("=")
    if not equals:
        return word, ()
    return written, (value,)


def _full_name(name: str, table: OptionTable) -> str | None:
    """Return a long name as the table spells it, also where it is shortened.

    Return None for an unknown or ambiguous one.
    """
    if name in table.spellings:
        return name
    if len(name) < 3:
        return None
    candidates = [each for each in table.spellings if each.startswith(name)]
    if len(candidates) != 1:
        return None
    return candidates[0]


def _find_short(word: str, table: OptionTable) -> Argument | None:
    if word in table.spellings:
        return _argument(word, word, table)
    written, values = _at_equals(word)
    if written in table.spellings:
        return replace(_argument(written, word, table), values=values, attached=True)
    if word[:2] in table.spellings:
        return replace(_argument(word[:2], word, table), values=(word[2:],), attached=True)
    if _NEGATIVE.fullmatch(word) or " " in word:
        return None
    return replace(_argument(written, word, table), values=values, attached=bool(values))


def _argument(spelling: str, word: str, table: OptionTable) -> Argument:
    option = table.spellings.get(spelling)
    if option is None:
        return Argument(spelling, (word,))
    return Argument(option.name, (word,), on=spelling not in option.off, option=option)


def _written(words: tuple[str, ...], table: OptionTable) -> Argument:
    """Return one of our options with its value, whatever the value's form."""
    option = _find(words[0], table) or Argument(words[0], words[:1])
    return _with_following(option, words)


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


def _as_object(arguments: Sequence[Argument]) -> str:
    """Return all ``--option.key value`` as a JSON object, "" without any."""
    keyed = [argument for argument in arguments if argument.key]
    if not keyed:
        return ""
    made: dict[str, Any] = {}
    for argument in keyed:
        *outer, last = argument.key.split(".")
        level = made
        for key in outer:
            inner = level.get(key)
            if not isinstance(inner, dict):
                inner = level[key] = {}
            level = inner
        level[last] = argument.value
    return json.dumps(made)
