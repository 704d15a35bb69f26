"""Predict three loads of the CPU engine after learning from three others.

Starts the demo model on the CPU engine (`gaudi-launch setup cpu`) with a separate state folder, measures three
loads with `gaudi-launch bench`, learns from them, and measures three others. The exit status is 0 when the median
error of the predicted TPOT, and that of the throughput, is within 20 %. The machine has to be idle: runs that
compete with other work are not repeatable.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LEARNED = ((1, 128, 48, 8), (4, 256, 48, 16), (8, 64, 64, 24))
OTHERS = ((2, 200, 48, 10), (6, 100, 64, 18), (8, 256, 48, 16))
LIMIT = 0.2
_PORT = "31879"
_SECONDS = 900


def command(*arguments: str, state: str) -> str:
    """Run gaudi-launch; return what it printed."""
    environment = {**os.environ, "XDG_STATE_HOME": state}
    words = [sys.executable, "-m", "gaudi_launch", *arguments]
    done = subprocess.run(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def bench(name: str, load: tuple[int, int, int, int], file: Path, state: str) -> dict[str, Any]:
    """Return one run as `bench --json` prints it."""
    clients, prompt, answer, requests = (str(number) for number in load)
    options = ("-i", prompt, "-o", answer, "--concurrency", clients, "--requests", requests, "--tool", "builtin")
    found: dict[str, Any] = json.loads(command("bench", name, *options, "--save", str(file), "--json", state=state))
    return found


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--name", default="learn-acceptance")
    name = reader.parse_args().name
    with tempfile.TemporaryDirectory() as folder:
        command("serve", "demo", "--engine", "cpu", "--name", name, "--port", _PORT, "--detach", state=folder)
        try:
            files = []
            for number, load in enumerate(LEARNED):
                files.append(Path(folder) / f"learned-{number}.json")
                bench(name, load, files[-1], folder)
            print(command("learn", *map(str, files), state=folder))
            runs = [
                bench(name, load, Path(folder) / f"other-{number}.json", folder)
                for number, load in enumerate(OTHERS)
            ]
        finally:
            command("stop", name, state=folder)
    errors: dict[str, list[float]] = {"tpot": [], "throughput": []}
    for load, run in zip(OTHERS, runs, strict=True):
        predicted, summary = run["predicted"], run["summary"]
        pairs = {
            "tpot": (predicted["tpot_seconds"]["expected"], summary["tpot"]["p50"]),
            "throughput": (
                predicted["throughput"]["output_tokens_per_second"]["expected"],
                summary["output_rate"],
            ),
        }
        for measure, (expected, measured) in pairs.items():
            errors[measure].append(abs(expected / measured - 1))
            print(f"{load} {measure}: predicted {expected:.4g}, measured {measured:.4g}")
    middle = {measure: statistics.median(found) for measure, found in errors.items()}
    print(", ".join(f"{measure}: median error {error:.0%}" for measure, error in middle.items()))
    return 0 if max(middle.values()) <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
