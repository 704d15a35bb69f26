"""Read the arguments of an engine's command line as options with their values.

As vLLM's FlexibleArgumentParser does (HabanaAI/vllm-fork@aice/v1.22.0:vllm/utils.py), which is
argparse with ``_`` for ``-`` in long names, ``--option.key value`` for JSON options, and
abbreviations of a long name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.planning.option_table import GENERIC, UNKNOWN, EngineOption, OptionTable

# argparse: arguments of this form are values, as long as no option has it
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+", re.ASCII)
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
        option = find_option(words[at], table)
        if option is None:
            found.append(Argument(words[at], (words[at],), positional=True))
            at += 1
            continue
        end = at + 1 + _values_after(option, words[at + 1 :], table)
        found.append(with_following(option, words[at:end]))
        at = end
    return tuple(found)


def with_following(option: Argument, words: tuple[str, ...]) -> Argument:
    """Return an option with the arguments that it was written as."""
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
        if word == "--" or find_option(word, table) is not None:
            break
        taken += 1
    return taken


def find_option(word: str, table: OptionTable) -> Argument | None:
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


def as_object(arguments: Sequence[Argument]) -> str:
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


def last_value(words: Sequence[str], name: str) -> str:
    """Return the effective value of an option in a command: "" where it has none.

    The engine's table is not known: an option is found by its long name.
    """
    found = [argument for argument in read_words(tuple(words)) if argument.name == name]
    if not found:
        return ""
    return as_object(found) or found[-1].value


def json_keys(text: str | None) -> Mapping[str, str]:
    """Return the texts of a JSON object by key; empty for any other value."""
    try:
        document = parse_json(text or "")
    except ValueError:
        return {}
    return {key: each for key, each in mapping(document).items() if isinstance(each, str)}
