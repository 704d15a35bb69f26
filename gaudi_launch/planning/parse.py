"""Words into a Request: one place reads numbers, ranges and lists, for our options and for the scripts' letters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gaudi_launch.errors import ExitCode, LaunchError

_MOST = 10**9
# more is no server but a slip of the pen, and neither its plan nor its warm-up would end
MOST_SEQS = 4096
MOST_TOKENS = 10_485_760
# vllm/engine/arg_utils.py human_readable_int: small letters count in thousands, capitals in 1024
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([kmgtKMGT])", re.ASCII)
_POWERS = "kmgt"
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?|\.\d{1,6})\s*(ms|s|m|min|h|d)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def number(flag: str, text: str, least: int = 1, most: int = _MOST) -> int:
    """A whole number within bounds. Raises LaunchError (USAGE)."""
    word = text.strip()
    value = int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else -1
    if not least <= value <= most:
        raise LaunchError("plan.number", ExitCode.USAGE, flag=flag, found=text, least=least, most=most)
    return value


def tokens(flag: str, text: str, most: int = MOST_TOKENS) -> int:
    """Return a number of tokens, which may be written as vLLM reads it: 32k is 32000, 32K is 32768.

    Raises LaunchError (USAGE).
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
    """Return the seconds of ``90``, ``90s``, ``5m``, ``1.5h`` or ``800ms``, None for what is not a time."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        return None
    return float(found[1]) * _SECONDS[found[2] or "s"]


def seconds(flag: str, text: str, *, least: float = 1, most: float = _MOST) -> float:
    """Return the seconds of a time within bounds, as `read_time` reads it. Raises LaunchError (USAGE)."""
    value = read_time(text)
    if value is None or not least <= value <= most:
        raise LaunchError("plan.time", ExitCode.USAGE, flag=flag, found=text, least=f"{least:g}", most=f"{most:g}")
    return value


def pair(flag: str, text: str, *, short: bool = True) -> tuple[int, int]:
    """Return ``least,most`` with least <= most; one number is both. Raises LaunchError (USAGE).

    ``short``: lengths may be written as `tokens` reads them.
    """
    words = text.split(",")
    if len(words) > 2:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text)
    read = tokens if short else _plain_tokens
    least, most = read(flag, words[0]), read(flag, words[-1])
    if least > most:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text)
    return least, most


def _plain_tokens(flag: str, text: str) -> int:
    return number(flag, text, 1, MOST_TOKENS)


@dataclass(frozen=True)
class Ranges:
    """What -i and -o state; ``open`` names those given by one number."""

    input: tuple[int, int] | None = None
    output: tuple[int, int] | None = None
    open: tuple[str, ...] = ()


def ranges(inputs: str | None, outputs: str | None, *, short: bool = True) -> Ranges:
    """Return the ranges of -i and -o; ``short`` as for `pair`. Raises LaunchError (USAGE)."""
    given = {
        name: text.removesuffix(",") for name, text in (("input", inputs), ("output", outputs)) if text is not None
    }
    found = {name: pair(f"-{name[0]}", text, short=short) for name, text in given.items()}
    return Ranges(
        found.get("input"), found.get("output"), tuple(name for name, text in given.items() if "," not in text)
    )


def reduce(text: str, one_is_both: bool = False, *, short: bool = True) -> tuple[int, int]:
    """``batch,length`` of -r; ``one_is_both`` as the start script reads a single number. Raises LaunchError.

    ``short`` as for `pair`.
    """
    words = text.split(",")
    if one_is_both and len(words) == 1:
        words *= 2
    if len(words) != 2:
        raise LaunchError("plan.reduce_words", ExitCode.USAGE, found=text)
    read = tokens if short else _plain_tokens
    return number("-r", words[0], 1, MOST_SEQS), read("-r", words[1])


def fraction(flag: str, text: str, least: float, most: float, strict: bool = False) -> str:
    """A number between bounds, kept in the words given ("0.0" is not "0" to an engine); ``strict`` wants a digit
    in front of the point. Raises LaunchError (USAGE)."""
    word = text.strip()
    plain = re.fullmatch(r"[0-9]+(\.[0-9]+)?" if strict else r"[0-9]+(\.[0-9]*)?|\.[0-9]+", word)
    if not (plain and len(word) < 20 and least <= float(word) <= most):
        raise LaunchError("plan.fraction", ExitCode.USAGE, flag=flag, found=text, least=least, most=most)
    return word


def replicas(text: str) -> tuple[int, int]:
    """``N`` or ``MIN..MAX``. Raises LaunchError (USAGE)."""
    least, dots, most = text.partition("..")
    found = number("--replicas", least, 1, 64), number("--replicas", most if dots else least, 1, 64)
    if found[0] > found[1]:
        raise LaunchError("ray.replicas_words", ExitCode.USAGE, found=text)
    return found


def port(flag: str, text: str) -> int:
    """A TCP port. Raises LaunchError (USAGE)."""
    return number(flag, text, 1, 65535)
