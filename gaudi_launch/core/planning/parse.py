"""Parse numbers, times and module IDs of options and start-script arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST = 10**9
# larger values are typos, and would make planning and warm-up run forever
MOST_SEQS = 4096
MOST_TOKENS = 10_485_760
MOST_CARDS = 64
# vllm/engine/arg_utils.py human_readable_int: lower-case letters count in thousands, capitals in
# 1024
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([kmgtKMGT])", re.ASCII)
_INTEGER = re.compile(r"\d{1,10}", re.ASCII)
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
            "plan.time",
            ExitCode.USAGE,
            flag=flag,
            found=text,
            least=f"{least:g}",
            most=f"{most:,.12g}",
        )
    return value


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
