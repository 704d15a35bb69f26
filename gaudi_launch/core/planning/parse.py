"""Parse numbers, ranges, lists and times of options and start-script arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST = 10**9
# larger values are typos, and would make planning and warm-up run forever
MOST_SEQS = 4096
MOST_TOKENS = 10_485_760
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
            "plan.time", ExitCode.USAGE, flag=flag, found=text, least=f"{least:g}", most=f"{most:g}"
        )
    return value


def pair(flag: str, text: str, *, short: bool = True) -> tuple[int, int]:
    """Return ``least,most`` with least <= most; one number is both.

    Raises LaunchError (USAGE).

    ``short``: lengths may be written as `tokens` reads them.
    """
    words, read = text.split(","), _READERS[short]
    try:
        least, most = read(flag, words[0]), read(flag, words[-1])
    except LaunchError:
        least, most = 1, 0
    if len(words) > 2 or least > most:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text, longest=MOST_TOKENS)
    return least, most


_READERS: dict[bool, Callable[[str, str], int]] = {
    True: tokens,
    False: partial(number, most=MOST_TOKENS),
}


@dataclass(frozen=True)
class Ranges:
    """The ranges of -i and -o; ``open`` names those given by one number."""

    input: tuple[int, int] | None = None
    output: tuple[int, int] | None = None
    open: tuple[str, ...] = ()


def ranges(inputs: str | None, outputs: str | None, *, short: bool = True) -> Ranges:
    """Return the ranges of -i and -o; ``short`` as for `pair`.

    Raises LaunchError (USAGE).
    """
    given = {
        name: text.removesuffix(",")
        for name, text in (("input", inputs), ("output", outputs))
        if text is not None
    }
    found = {name: pair(f"-{name[0]}", text, short=short) for name, text in given.items()}
    return Ranges(
        found.get("input"),
        found.get("output"),
        tuple(name for name, text in given.items() if "," not in text),
    )


def reduce(text: str, one_is_both: bool = False, *, short: bool = True) -> tuple[int, int]:
    """Return ``batch,length`` of -r.

    ``one_is_both`` reads a single number as the start script does. ``short`` as for `pair`. Raises
    LaunchError.
    """
    words = text.split(",")
    if one_is_both and len(words) == 1:
        words *= 2
    try:
        batch, length = words
        return number("-r", batch, 1, MOST_SEQS), _READERS[short]("-r", length)
    except (LaunchError, ValueError):
        raise LaunchError(
            "plan.reduce_words", ExitCode.USAGE, found=text, most=MOST_SEQS, longest=MOST_TOKENS
        ) from None


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


def replicas(text: str) -> tuple[int, int]:
    """Return ``N`` or ``MIN..MAX``. Raises LaunchError (USAGE)."""
    least, dots, most = text.partition("..")
    if not dots:
        most = least
    try:
        found = number("--replicas", least, 1, 64), number("--replicas", most, 1, 64)
    except LaunchError:
        found = 1, 0
    if found[0] > found[1]:
        raise LaunchError("ray.replicas_words", ExitCode.USAGE, found=text)
    return found


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
