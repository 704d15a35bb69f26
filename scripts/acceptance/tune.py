"""Tune the demo model on the CPU engine and check the answers.

Needs `gaudi-launch setup cpu`; the state folder is temporary. From a bad plan
(`-b 1`) the answer has to be another plan, and `bench compare` of a run of each has to call the
answer's tokens/s better. From the default, the default and the answer are served again in turns and
measured: the answer may not be slower by more than the repeats of either differ. The exit status is
0 when both are so and no service is left. `--short` takes fewer requests and plans and leaves out
the second part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SECONDS = 3600
_REPEATS = 3


def command(*arguments: str, state: str) -> str:
    """Run gaudi-launch; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *arguments],
        env={**os.environ, "XDG_STATE_HOME": state},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def saved(state: str, batches: Sequence[int]) -> list[str]:
    """Return the files of plans with these -b."""
    files = [str(Path(state) / f"b{batch}.yaml") for batch in batches]
    for batch, file in zip(batches, files, strict=True):
        command("plan", "demo", "-b", str(batch), "--save", file, state=state)
    return files


def tune(state: str, load: list[str], asked: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Return the answer of one search."""
    words = ["tune", "--minutes", asked.minutes, *load, "--json"]
    found: dict[str, Any] = json.loads(command(*words, *more, state=state))
    for start in found["starts"]:
        rates = ", ".join(f"{run['output_tokens_per_second']:.1f}" for run in start["runs"])
        print(f"  round {start['round']}, {start['candidate']}: {rates or start['why']} tokens/s")
    print(f"  best: {found['best']}", flush=True)
    return found


def is_proved(found: dict[str, Any], state: str) -> bool:
    """Report whether another plan won, and 'bench compare' calls it better."""
    if found["best"]["is_given"] or not found["compare"]:
        return False
    rows = json.loads(command("bench", "compare", *found["compare"], "--json", state=state))["rows"]
    (rate,) = [row for row in rows if row["name"] == "output_rate"]
    print(
        f"  bench compare: {rate['before']:.1f} -> {rate['after']:.1f} tokens/s: {rate['verdict']}",
        flush=True,
    )
    return bool(rate["verdict"] == "better")


def rates(state: str, load: list[str], port: str, *words: str) -> list[float]:
    """Return output tokens per second of repeats on a server of these options."""
    name = ("--name", "tune-acceptance", "--port", port)
    command("serve", *words, *name, "--detach", state=state)
    try:
        bench = ["bench", "tune-acceptance", *load, "--tool", "builtin", "--json"]
        runs = [json.loads(command(*bench, state=state)) for _ in range(_REPEATS + 1)]
    finally:
        command("stop", "tune-acceptance", state=state)
    # the first one compiles and allocates
    return [run["summary"]["output_rate"] for run in runs[1:]]


def is_no_worse(plan: str, state: str, load: list[str], port: str) -> bool:
    """Report whether a saved plan is as fast as the default, up to the noise."""
    default: list[float] = []
    best: list[float] = []
    for _ in range(2):
        default += rates(state, load, port, "demo")
        best += rates(state, load, port, "--plan", plan)
    before, after = statistics.median(default), statistics.median(best)
    noise = max((max(each) - min(each)) / 2 / statistics.median(each) for each in (default, best))
    print(
        f"  default {before:.1f}, answer {after:.1f} tokens/s, repeats differ by {noise:.0%}",
        flush=True,
    )
    return after >= before * (1 - noise)


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--minutes", default="30")
    reader.add_argument("--port", default="31881")
    reader.add_argument("--short", action="store_true")
    asked = reader.parse_args()
    load = ["--concurrency", "8", "-i", "64", "-o", "32", "--requests", "24"]
    if asked.short:
        load = ["--concurrency", "4", "-i", "32", "-o", "16", "--requests", "8"]
    others = (8,) if asked.short else (4, 8, 16, 32)
    with tempfile.TemporaryDirectory() as state:
        print("from -b 1:", flush=True)
        good = is_proved(tune(state, load, asked, *saved(state, (1, *others))), state)
        if not asked.short:
            print("from the default:", flush=True)
            plan = str(Path(state) / "best.yaml")
            default = str(Path(state) / "default.yaml")
            command("plan", "demo", "--save", default, state=state)
            tune(state, load, asked, default, *saved(state, others), "--save", plan)
            good = is_no_worse(plan, state, load, asked.port) and good
        left = json.loads(command("ps", "--json", state=state))["services"]
        print(f"services left: {len(left)}")
    return 0 if good and not left else 1


if __name__ == "__main__":
    sys.exit(main())
