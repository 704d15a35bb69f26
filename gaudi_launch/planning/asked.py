"""Words into a Request: one place reads numbers, ranges and lists, for our options and for the scripts' letters."""

from __future__ import annotations

from gaudi_launch.errors import ExitCode, LaunchError

_MOST = 10**9


def number(flag: str, text: str, least: int = 1, most: int = _MOST) -> int:
    """A whole number within bounds. Raises LaunchError (USAGE)."""
    word = text.strip()
    value = int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else -1
    if not least <= value <= most:
        raise LaunchError("plan.number", ExitCode.USAGE, flag=flag, found=text, least=least, most=most)
    return value


def pair(flag: str, text: str) -> tuple[int, int]:
    """``least,most`` with least <= most; one number stands for both. Raises LaunchError (USAGE)."""
    words = text.split(",")
    if len(words) > 2:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text)
    least, most = number(flag, words[0]), number(flag, words[-1])
    if least > most:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text)
    return least, most


def reduce(text: str) -> tuple[int, int]:
    """``batch,length`` of -r. Raises LaunchError (USAGE)."""
    words = text.split(",")
    if len(words) != 2:
        raise LaunchError("plan.reduce_words", ExitCode.USAGE, found=text)
    return number("-r", words[0]), number("-r", words[1])


def fraction(flag: str, text: str, least: float, most: float) -> str:
    """A number between bounds, kept in the words given ("0.0" is not "0" to an engine). Raises LaunchError."""
    word = text.strip()
    plain = word.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit() and least <= float(word) <= most):
        raise LaunchError("plan.fraction", ExitCode.USAGE, flag=flag, found=text, least=least, most=most)
    return word


def port(flag: str, text: str) -> int:
    """A TCP port. Raises LaunchError (USAGE)."""
    return number(flag, text, 1, 65535)
