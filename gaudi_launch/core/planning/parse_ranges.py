"""Parse ranges, pairs, shares and lists of options and start-script arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OneNumber
from gaudi_launch.core.planning.parse import (
    MOST_SEQS,
    MOST_TOKENS,
    number,
    parse_modules,
    tokens,
)

MOST_REPLICAS = 10_000
# by whether a digit is required before the point
_FRACTIONS = {
    True: re.compile(r"[0-9]+(\.[0-9]+)?"),
    False: re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+"),
}
# two digits, as in MOST_CARDS
_MODULES = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")


_READERS: dict[bool, Callable[[str, str], int]] = {
    True: tokens,
    False: partial(number, most=MOST_TOKENS),
}


def pair(flag: str, text: str, *, short: bool = True) -> tuple[int, int]:
    """Return ``least,most`` with least <= most; one number is both.

    ``short``: lengths may be written as `tokens` reads them. Raises LaunchError (USAGE).
    """
    words, read = text.removesuffix(",").split(","), _READERS[short]
    try:
        least, most = read(flag, words[0]), read(flag, words[-1])
    except LaunchError:
        least, most = 1, 0
    if len(words) > 2 or least > most:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text, longest=MOST_TOKENS)
    if len(words) == 1:
        return OneNumber((least, most))
    return least, most


@dataclass(frozen=True)
class Ranges:
    """The ranges of -i and -o."""

    input: tuple[int, int] | None = None
    output: tuple[int, int] | None = None


def reduce(flag: str, text: str, *, short: bool = True) -> tuple[int, int]:
    """Return ``batch,length``; one number is both, as in the start script.

    ``short`` as for `pair`. Raises LaunchError (USAGE).
    """
    words = text.split(",")
    try:
        batch, length = words * 2 if len(words) == 1 else words
        found = number(flag, batch, 1, MOST_SEQS), _READERS[short](flag, length)
    except (LaunchError, ValueError):
        raise not_reduce(text) from None
    return OneNumber(found) if len(words) == 1 else found


def not_reduce(text: str) -> LaunchError:
    """Return the error (USAGE) about a value of -r."""
    return LaunchError(
        "plan.reduce_words", ExitCode.USAGE, found=text, most=MOST_SEQS, longest=MOST_TOKENS
    )


def fraction(flag: str, text: str, least: float, most: float, strict: bool = False) -> str:
    """Return a number between bounds, as it was written.

    "0.0" is not "0" to an engine; ``strict`` requires a digit before the point. Raises LaunchError
    (USAGE).
    """
    word = text.strip()
    plain = _FRACTIONS[strict].fullmatch(word)
    if not (plain and len(word) < 20 and least <= float(word) <= most):
        raise LaunchError(
            "plan.fraction", ExitCode.USAGE, flag=flag, found=text, least=least, most=most
        )
    return word


def share(text: str | None, default: float) -> float:
    """Return a share between 0 and 1; the default for other text."""
    try:
        value = float(text or default)
    except ValueError:
        return default
    if not 0 <= value <= 1:
        return default
    return value


def replicas(flag: str, text: str, most: int = MOST_REPLICAS) -> tuple[int, int]:
    """Return ``N`` or ``MIN..MAX``. Raises LaunchError (USAGE)."""
    words = text.split("..")
    try:
        found = number(flag, words[0], 1, most), number(flag, words[-1], 1, most)
    except LaunchError:
        found = 1, 0
    if len(words) > 2 or found[0] > found[1]:
        raise LaunchError("ray.replicas_words", ExitCode.USAGE, found=text, most=most)
    return OneNumber(found) if len(words) == 1 else found


def module_ranges(flag: str, text: str) -> tuple[int, ...]:
    """Return module IDs, of which ``0-3`` are four. Raises LaunchError (USAGE)."""
    words: list[str] = []
    for word in text.split(","):
        match = _MODULES.fullmatch(word.strip())
        if match is None or int(match[1]) > int(match[2]):
            words.append(word)
            continue
        words += [str(module) for module in range(int(match[1]), int(match[2]) + 1)]
    return parse_modules(",".join(words), flag)
