"""Execute plans in the code of every release: buckets, options, variables.

    python scripts/acceptance/releases.py CODE PYTHON [--release 0.26.0 ...]
        [--six] [--draw SEED NUMBER] [--record]

CODE has ``gaudi/VERSION`` (checkouts of vllm-project/vllm-gaudi) and ``vllm/VERSION`` (vLLM's code:
a checkout, or a wheel of that release unpacked). PYTHON is an interpreter with torch and the
packages that vLLM imports. No card and no Gaudi software is needed. For each release and kind of
plan: the release's own bucket module makes the lists of the plan's variables and arguments, its own
parser reads the plan's options, and each variable is looked for in its list. ``--record`` writes
``tests/data/releases.json.gz``: the questions and the digests of the answers, with which CI
compares. All 14 releases take about 16 minutes on one
core; ``--draw`` makes other kinds of plans at random.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch.core.engines.introspect import ask_buckets
from gaudi_launch.core.engines.known_versions import releases
from tests.support.release_plans import (
    KINDS,
    SIX,
    Planned,
    drawn,
    planned,
    record_of,
    unread,
)

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "data" / "releases.json.gz"
_PARSER = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import importlib
platforms = importlib.import_module("vllm.platforms")
platforms._current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
from vllm.entrypoints.openai.cli_args import make_arg_parser
parser = make_arg_parser(FlexibleArgumentParser())
answers = []
for argv in json.load(sys.stdin):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parser.parse_args(argv)
        answers.append("")
    except (Exception, SystemExit) as error:
        answers.append((printed.getvalue().strip().splitlines() or [str(error)])[-1])
print(json.dumps(answers))
"""


@dataclass
class Row:
    """One release: the plans that were made, and what its code does otherwise."""

    release: str
    made: int = 0
    refused: list[str] = field(default_factory=list)
    compared: int = 0
    differ: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)


def answers_of(code: Path, made: Mapping[str, Planned], release: str) -> dict[str, Any]:
    """Return the answer of a release's bucket module for each plan with a question."""
    asked = {kind: plan.question for kind, plan in made.items() if plan.question is not None}
    cases = [
        {"env": dict(each.environment), "args": dict(each.arguments)} for each in asked.values()
    ]
    found = ask_buckets(
        sys.executable, "vllm_gaudi", cases, search=[str(code / "gaudi" / release)], seconds=600
    ).replies
    return dict(zip(asked, found or [None] * len(asked), strict=True))


def differing(made: Mapping[str, Planned], answers: Mapping[str, Any]) -> Iterator[str]:
    """Yield each plan whose lists the engine makes otherwise, and how."""
    for kind, reply in answers.items():
        ours = [made[kind].prompt, made[kind].decode]
        theirs = [reply["prompt"], reply["decode"]] if reply and "prompt" in reply else reply
        if ours != theirs:
            yield f"{kind}: plan {_counts(ours)}, engine {_counts(theirs)}"


def _counts(lists: Any) -> str:
    if isinstance(lists, list):
        return f"{len(lists[0])} + {len(lists[1])}"
    return str(lists)[:120]


def refused_options(
    code: Path, python: str, made: Mapping[str, Planned], release: str
) -> Iterator[tuple[str, str]]:
    """Yield each plan whose options the release's parser refuses, with its sentence."""
    upstream = release.partition(".post")[0]
    done = subprocess.run(
        [python, "-c", _PARSER, str(code / "vllm" / upstream)],
        input=json.dumps([plan.argv for plan in made.values()]),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        yield "every kind", done.stderr.strip()[-200:]
        return
    for kind, said in zip(made, json.loads(done.stdout.splitlines()[-1]), strict=True):
        if said:
            yield kind, said


def execute(
    code: Path, python: str, release: str, kinds: Mapping[str, Any]
) -> tuple[Row, list[Any]]:
    """Return the row of one release, and what CI compares."""
    row = Row(release)
    made: dict[str, Planned] = {}
    for kind, options in kinds.items():
        plan = planned(f"vllm-gaudi@{release}", options)
        if isinstance(plan, str):
            row.refused.append(f"{kind}: refused, {plan}")
            continue
        made[kind] = plan
        row.variables += [f"{kind}: {name}" for name in unread(plan, release)]
    row.made = len(made)
    row.compared = sum(plan.question is not None for plan in made.values())
    answers = answers_of(code, made, release)
    row.differ = list(differing(made, answers))
    row.options = [f"{kind}: {how}" for kind, how in refused_options(code, python, made, release)]
    record = [
        record_of(kind, question, answers[kind])
        for kind, plan in made.items()
        if (question := plan.question) is not None and "prompt" in (answers[kind] or {})
    ]
    return row, record


def record(release: str, found: list[Any]) -> None:
    """Put the questions and answers of one release into the recorded file."""
    known: dict[str, Any] = {}
    if RECORDED.is_file():
        known = json.loads(gzip.decompress(RECORDED.read_bytes()))
    known[release] = found
    whole = json.dumps(dict(sorted(known.items())), separators=(",", ":"))
    RECORDED.write_bytes(gzip.compress(whole.encode(), mtime=0))


def main() -> int:
    """Print a table, and what differs; return 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("code", type=Path)
    parser.add_argument("python")
    parser.add_argument("--release", action="append")
    parser.add_argument("--six", action="store_true", help="six plans only")
    parser.add_argument("--draw", type=int, nargs=2, metavar=("SEED", "NUMBER"), help="other kinds")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    known = [each.version for each in releases("vllm-gaudi") if each.executed]
    kinds = SIX if options.six else KINDS
    if options.draw:
        kinds = drawn(*options.draw)
    began, wrong = time.monotonic(), 0
    print("release        plans refused buckets equal  options refused  variables unread")
    for release in options.release or reversed(known):
        row, found = execute(options.code, options.python, release, kinds)
        equal = f"{row.compared - len(row.differ)}/{row.compared}"
        print(
            f"{row.release:14} {row.made:5} {len(row.refused):7} {equal:>13} "
            f"{len(row.options):16} {len(row.variables):17}",
            flush=True,
        )
        for line in (*row.refused, *row.differ, *row.options, *row.variables):
            print(f"    {line}")
        if options.record:
            record(release, found)
        wrong += len(row.differ) + len(row.options) + len(row.variables)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
