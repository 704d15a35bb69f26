"""Words into a Request: one place reads numbers, ranges and lists, for our options and for the scripts' letters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.request import Request

_MOST = 10**9
# more is no server but a slip of the pen, and neither its plan nor its warm-up would end
MOST_SEQS = 4096
MOST_TOKENS = 10_485_760


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
    least, most = number(flag, words[0], 1, MOST_TOKENS), number(flag, words[-1], 1, MOST_TOKENS)
    if least > most:
        raise LaunchError("plan.range", ExitCode.USAGE, flag=flag, found=text)
    return least, most


def ranges(inputs: str | None, outputs: str | None) -> dict[str, Any]:
    """The fields of a Request that -i and -o give; ``open_ranges`` names those given by one number."""
    given = {name: text for name, text in (("input", inputs), ("output", outputs)) if text is not None}
    fields: dict[str, Any] = {
        f"{name}_range": pair(f"-{name[0]}", text.removesuffix(",")) for name, text in given.items()
    }
    return {
        **fields,
        "open_ranges": tuple(name for name, text in given.items() if "," not in text.removesuffix(",")),
    }


def reduce(text: str, one_is_both: bool = False) -> tuple[int, int]:
    """``batch,length`` of -r; ``one_is_both`` as the start script reads a single number. Raises LaunchError."""
    words = text.split(",")
    if one_is_both and len(words) == 1:
        words *= 2
    if len(words) != 2:
        raise LaunchError("plan.reduce_words", ExitCode.USAGE, found=text)
    return number("-r", words[0], 1, MOST_SEQS), number("-r", words[1], 1, MOST_TOKENS)


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


def with_secret_moved(request: Request) -> Request:
    """Take ``--api-key`` out of the engine's words: other users read command lines. vLLM reads VLLM_API_KEY too."""
    kept: list[str] = []
    key: str | None = None
    words = iter(request.extra)
    for word in words:
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == "--api-key":
            key = value if equals else next(words, "")
        else:
            kept.append(word)
    if key is None:
        return request
    environment = {**request.environment, "VLLM_API_KEY": key}
    return replace(request, extra=tuple(kept), environment=environment)
