"""Parse numbers, ranges, lists and times of options and start-script arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OneNumber

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST = 10**9
# larger values are typos, and would make planning and warm-up run forever
MOST_SEQS = 4096
MOST_TOKENS = 10_485_760
MOST_REPLICAS = 10_000
MOST_CARDS = 64
# vllm/engine/arg_utils.py human_readable_int: lower-case letters count in thousands, capitals in
# 1024
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([kmgtKMGT])", re.ASCII)
_INTEGER = re.compile(r"\d{1,10}", re.ASCII)
# by whether a digit is required before the point
_FRACTIONS = {
    True: re.compile(r"[0-9]+(\.[0-9]+)?"),
    False: re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+"),
}
_POWERS = "kmgt"
# two digits, as in MOST_CARDS
_MODULES = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?|\.\d{1,6})\s*(ms|s|m|min|h|d)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def number(flag: str, text: str, least: int = 1, most: int = _MOST) -> int:
    """Return an integer within bounds. Raises LaunchError (USAGE)."""
    plain = _INTEGER.fullmatch(text.strip())
    value = -1
    if plain:
        value = int(plain[0])
    if not least <= value <= most:
        raise LaunchError(
            "plan.number", ExitCode.USAGE, flag=flag, found=text, least=least, most=most
        )
    return value


def tokens(flag: str, text: str, most: int = MOST_TOKENS) -> int:
    """Return a number of tokens, also as 32k (32000) or 32K (32768).

    vLLM reads them in the same way. Raises LaunchError (USAGE).
    """
    short = _SHORT.fullmatch(text.strip())
    if short is None:
        return number(flag, text, 1, most)
    base = 1000 if short[2].islower() else 1024
    count = int(float(short[1]) * base ** (1 + _POWERS.index(short[2].lower())))
    if not 1 <= count <= most:
        raise LaunchError("plan.number", ExitCode.USAGE, flag=flag, found=text, least=1, most=most)
    return count


def read_time(text: str) -> float | None:
    """Return the seconds of ``90``, ``90s``, ``5m``, ``1.5h`` or ``800ms``, or None.

    Return None for other text.
    """
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        return None
    return float(found[1]) * _SECONDS[found[2] or "s"]


def seconds(flag: str, text: str, *, least: float = 1, most: float = _MOST) -> float:
    """Return the seconds of a time within bounds, as `read_time` reads it.

    Raises LaunchError (USAGE).
    """
    value = read_time(text)
    if value is None or not least <= value <= most:
        raise LaunchError(
            "plan.time",
            ExitCode.USAGE,
            flag=flag,
            found=text,
            least=f"{least:g}",
            most=f"{most:,.12g}",
        )
    return value


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


_READERS: dict[bool, Callable[[str, str], int]] = {
    True: tokens,
    False: partial(number, most=MOST_TOKENS),
}


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


def parse_modules(text: str, name: str = "-m") -> tuple[int, ...]:
    """Return module IDs separated by commas, in the order given.

    Raises LaunchError (USAGE).
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        raise LaunchError("placement.bad_modules", ExitCode.USAGE, name=name, found=text)
    found = tuple(int(word) for word in words)
    refuse_doubles(found, name)
    return found


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


def refuse_doubles(modules: tuple[int, ...], flag: str) -> None:
    """Raise LaunchError (USAGE) for module IDs of which one is named twice."""
    if len(set(modules)) != len(modules):
        shown, once = (",".join(map(str, each)) for each in (modules, dict.fromkeys(modules)))
        raise LaunchError("placement.doubled", ExitCode.USAGE, name=flag, found=shown, once=once)


def port(flag: str, text: str) -> int:
    """Return a TCP port. Raises LaunchError (USAGE)."""
    return number(flag, text, 1, 65535)


def if_given(
    parse: Callable[Concatenate[str, str, _P], _T],
    flag: str,
    text: str | None,
    *bounds: _P.args,
    **named: _P.kwargs,
) -> _T | None:
    """Return the value of an option; None where it is missing or empty.

    Raises LaunchError (USAGE).
    """
    if not text:
        return None
    return parse(flag, text, *bounds, **named)
