"""vLLM options that the user wrote behind ``--`` and that decide what a plan decides: the plan goes by them.

The words themselves stay where they are: behind ours, where the last counts. What a plan computes from them (cards,
buckets, memory, the address to ask) must be the same as what the engine will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.asked import MOST_SEQS, MOST_TOKENS, number
from gaudi_launch.planning.asked import port as read_port
from gaudi_launch.planning.request import Request

# vllm/engine/arg_utils.py human_readable_int: small letters count in thousands, capitals in 1024
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([kmgtKMGT])", re.ASCII)
_POWERS = "kmgt"
# the engine finds the length itself (upstream's human_readable_int_or_auto)
_ITS_OWN = ("auto", "-1")
# each copy or stage takes cards of its own, which a plan of one server has no word for
_MORE_CARDS = ("--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp")
# what 'cluster' lays out over its hosts, each with our option that decides it
_LAYOUT = (
    ("--tensor-parallel", "--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel", "--pipeline-parallel-size", "-pp"),
    ("--data-parallel", "--data-parallel-size", "-dp"),
)


@dataclass(frozen=True)
class _Word:
    field: str
    names: tuple[str, ...]
    flag: str
    read: Callable[[str, str], Any]


def _tokens(name: str, text: str) -> int:
    short = _SHORT.fullmatch(text)
    if short is None:
        return number(name, text, 1, MOST_TOKENS)
    base = 1000 if short[2].islower() else 1024
    count = float(short[1]) * base ** (1 + _POWERS.index(short[2].lower()))
    return number(name, str(int(count)), 1, MOST_TOKENS)


def _text(name: str, text: str) -> str:
    if not text:
        raise LaunchError("plan.no_value", ExitCode.USAGE, option=name)
    return text


def _seqs(name: str, text: str) -> int:
    return number(name, text, 1, MOST_SEQS)


_WORDS = (
    _Word("max_model_len", ("--max-model-len",), "-l", _tokens),
    _Word("max_num_batched_tokens", ("--max-num-batched-tokens",), "-t", _tokens),
    _Word("max_num_seqs", ("--max-num-seqs",), "-b", _seqs),
    _Word("max_prefill_seqs", ("--max-num-prefill-seqs",), "--max-prefill-seqs", _seqs),
    _Word("cards", ("--tensor-parallel-size", "-tp"), "-n", lambda name, text: number(name, text, 1, 64)),
    _Word("port", ("--port",), "-p", read_port),
    _Word("host", ("--host",), "-u", _text),
    _Word("served_name", ("--served-model-name",), "--served-name", _text),
    _Word("trust_remote_code", ("--trust-remote-code",), "--trust-remote-code", lambda *_: True),
)


def word_of(extra: Sequence[str], option: str) -> str | None:
    """The last value of an option among the user's own words; "" for a bare one, None when it is not there."""
    found: str | None = None
    for word, following in zip(extra, [*extra[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            found = value if equals else "" if following.startswith("--") else following
    return found


def has_word(extra: Sequence[str], *options: str) -> bool:
    """Is one of these options among the user's own words?"""
    return any(word.partition("=")[0].replace("_", "-") in options for word in extra)


def with_own_words(request: Request, lacks: Collection[str]) -> Request:
    """The request as the words behind ``--`` make it; ``lacks`` are our flags that mean nothing to this engine.

    Raises LaunchError (USAGE) for a value that the engine would stop on, and for another model.
    """
    if has_word(request.extra, "--model"):
        raise LaunchError("plan.own_option", ExitCode.USAGE, option="--model", ours="-w")
    changed: dict[str, Any] = {}
    overruled = []
    for word in _WORDS:
        name, text = next(((n, t) for n in word.names if (t := word_of(request.extra, n)) is not None), ("", None))
        if text is None or word.flag in lacks or (word.field == "max_model_len" and text in _ITS_OWN):
            continue
        value = word.read(name, text)
        if getattr(request, word.field) not in (None, value):
            overruled.append(word.flag)
        changed[word.field] = value
    return replace(request, **changed, overruled=tuple(overruled))


def refuse_more_cards(extra: Sequence[str]) -> None:
    """Raise LaunchError (USAGE) for stages or copies of a model, which take more cards than -n names."""
    for option in _MORE_CARDS:
        text = word_of(extra, option)
        if text is not None and text != "1":
            raise LaunchError("plan.more_cards", ExitCode.USAGE, option=option, found=text)


def refuse_layout(extra: Sequence[str]) -> None:
    """Raise LaunchError (USAGE) for sizes that a cluster's own options decide: Ray starts so many of its HPUs."""
    for ours, *names in _LAYOUT:
        if has_word(extra, *names):
            raise LaunchError("plan.own_option", ExitCode.USAGE, option=names[0], ours=ours)
