"""An engine's recorded option table as a parser of its API server's options."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from typing import Any

from tests.support.places import DATA

DATA = DATA / "parity" / "cli-options"
FILES = {
    "1.21": "vllm-fork-aice-v1.21.0",
    "1.22": "vllm-fork-aice-v1.22.0",
    "deepseek_r1": "vllm-fork-deepseek_r1",
}
# vLLM itself: `serve` with the model as a separate argument
UPSTREAM = tuple(
    sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("vllm-upstream-*.json.gz"))
)
# argparse's actions that take no value, as upstream's table names them
_BARE = ("BooleanOptionalAction", "_StoreTrueAction", "_StoreFalseAction", "_HelpAction")


class Refused(Exception):
    """The engine's parser would end with this message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Refused(message)


def parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of an engine version (a key of FILES, or one of UPSTREAM).

    It has exact names (after ``_`` to ``-``), numbers of values and choices.
    """
    made = _Parser(add_help=False, allow_abbrev=False)
    for row in _rows(version):
        flags = [flag.replace("_", "-") if flag.startswith("--") else flag for flag in row["flags"]]
        if row["nargs"] == 0 or row.get("action") in _BARE:
            made.add_argument(*flags, dest=row["dest"], action="store_true")
            continue
        kind = {"int": int, "float": float}.get(row["type"] or "", str)
        choices = row["choices"]
        if choices is not None and kind is str:
            choices = [str(choice) for choice in choices]
        nargs = row["nargs"]
        made.add_argument(*flags, dest=row["dest"], type=kind, choices=choices, nargs=nargs)
    return made


def parse(version: str, argv: Sequence[str]) -> argparse.Namespace:
    """Parse what follows ``-m MODULE``, with dashes for underscores.

    The fork's FlexibleArgumentParser does the same.
    """
    words = [_dashes(word) if word.startswith("--") else word for word in argv]
    return parser(version).parse_args(words)


def _dashes(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _rows(version: str) -> list[dict[str, Any]]:
    packed = (DATA / f"{FILES.get(version, version)}.json.gz").read_bytes()
    found: list[dict[str, Any]] = json.loads(gzip.decompress(packed))
    return found


def flags(version: str) -> set[str]:
    """Return every spelling of every option of an engine version."""
    return {
        flag.replace("_", "-") if flag.startswith("--") else flag
        for row in _rows(version)
        for flag in row["flags"]
    }


def text_parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of an engine version with every value as text.

    It divides arguments as the engine does; None is for absent options.
    """
    made = _Parser(add_help=False)
    for row in [each for each in _rows(version) if each["flags"]]:
        names = [flag.replace("_", "-") if flag.startswith("--") else flag for flag in row["flags"]]
        long = next(
            name for name in names if name.startswith("--") and not name.startswith("--no-")
        )
        dest = long[2:].replace("-", "_")
        if row["action"] == "BooleanOptionalAction":
            positive = [name for name in names if not name.startswith("--no-")]
            made.add_argument(*positive, dest=dest, action=argparse.BooleanOptionalAction)
        elif row["nargs"] == 0 or row["action"] in _BARE:
            made.add_argument(*names, dest=dest, action="store_const", const=True)
        elif row["action"] == "_AppendAction":
            made.add_argument(*names, dest=dest, action="append")
        else:
            made.add_argument(*names, dest=dest, nargs=row["nargs"])
    return made


def normal(words: Sequence[str]) -> list[str]:
    """Return arguments as vLLM's FlexibleArgumentParser passes them to argparse."""
    return [_dashes(word) if word.startswith("--") else word for word in words]
