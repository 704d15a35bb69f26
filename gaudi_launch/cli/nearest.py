"""Find the known names that a misspelt one may mean.

It is used for commands, options, and every error that lists known names.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from gaudi_launch.cli.console import sentences
from gaudi_launch.cli.table import listed
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.redact_values import redact_arguments

_MOST = 2
# difflib's ratio below which a name is another one, not a misspelling; and how far from the best
# (assumed)
_NEAR = 0.6
_MARGIN = 0.1


def nearest(found: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are similar to ``found``, the nearest first.

    Capitals do not count.

    >>> nearest("sevre", ["serve", "plan"])
    ['serve']
    >>> nearest("--tensor", ["--cards"])
    []
    """
    by_key: dict[str, str] = {}
    for name in known:
        by_key.setdefault(name.lower(), name)
    wanted = found.lower()
    keys = get_close_matches(wanted, list(by_key), n=_MOST, cutoff=_NEAR)
    ratios = [SequenceMatcher(None, key, wanted).ratio() for key in keys]
    return [
        by_key[key] for key, ratio in zip(keys, ratios, strict=True) if ratio >= ratios[0] - _MARGIN
    ]


# errors about a model that was not found -> the value that names it
_MODEL_OF = {
    "models.no_folder": "path",
    "models.not_on_hub": "model",
    "models.offline": "model",
    "models.sizes_unknown": "model",
    "fp8.no_folder": "path",
    "pull.no_repo": "repo",
    "support.unknown_model": "found",
}


def suggestion(error: LaunchError) -> tuple[str, Sequence[str]]:
    """Return a wrong name and the nearest ones; none where no name is similar.

    The names are those that the error lists, or the known models.
    """
    values = error.text.values
    found, known = values.get("found"), values.get("known")
    near: Sequence[str] = ()
    is_unanswered = error.exit_code is ExitCode.USAGE and "near" not in values
    if error.id in _MODEL_OF:
        found = str(values.get(_MODEL_OF[error.id], ""))
        near = listed("nearest models")(found)
    elif is_unanswered and isinstance(found, str) and isinstance(known, str):
        near = nearest(found, [name.strip() for name in known.split(",")])
    return str(found), near


def corrected_error(error: LaunchError, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the document of an error, with the nearest names and the next commands."""
    document = error.to_json()
    found, near = suggestion(error)
    commands = corrected(arguments, found, near)
    if near:
        asked = text("usage.did_you_mean", near=", ".join(near))
        document["message"] = sentences(document["message"], asked)
    if error.id == "serve.no_engine":
        commands = [shlex.join(["gaudi-launch", "setup", str(error.text.values["engine"])])]
    if commands:
        document["commands"] = commands
    return document


def corrected(arguments: Sequence[str], found: str, near: Iterable[str]) -> list[str]:
    """Return the command line with each near name in place of a wrong one.

    The list is empty where the line has no such name.

    >>> corrected(["plan", "--engine=vlm"], "vlm", ["vllm"])
    ['gaudi-launch plan --engine=vllm']
    >>> corrected(["stop", "smal"], "smal", ["small-1", "small-2"])
    ['gaudi-launch stop small-1', 'gaudi-launch stop small-2']
    >>> corrected(["ps", "--jso", "--json"], "--jso", ["--json"])
    ['gaudi-launch ps --json']
    >>> corrected(["describe", "pod", "q"], "describe pod", ["gaudi-launch status"])
    ['gaudi-launch status q']
    """
    lines = (_with_name(arguments, found, name) for name in near if found and name)
    return [
        shlex.join(["gaudi-launch", *redact_arguments(words)])
        for words in lines
        if words is not None
    ]


def _with_name(arguments: Sequence[str], found: str, near: str) -> list[str] | None:
    ours = [] if near.startswith("gaudi-launch ") and found.startswith("-") else shlex.split(near)
    ours = [word for word in ours if word != "gaudi-launch"]
    wrong = [found] if found in arguments else found.split()
    for at, word in enumerate(arguments):
        before, after = arguments[:at], arguments[at + len(wrong) :]
        is_wrong = [*arguments[at : at + len(wrong)]] == wrong
        if is_wrong and not ours:
            # the option is a command here
            return [*shlex.split(near)[1:], *before[1:], *after]
        if is_wrong and near in arguments:
            # a flag that is given twice
            return [*before, *after]
        if is_wrong:
            return [*before, *ours, *after]
        if word.startswith((f"{found}=", f"simulated:{found}")) or word.endswith(f"={found}"):
            return [*arguments[:at], word.replace(found, near, 1), *arguments[at + 1 :]]
    return None
