"""Predict three loads of the CPU engine after learning from three others.

Starts the demo model on the CPU engine (`gaudi-launch setup cpu`) with a separate state folder,
measures three loads with `gaudi-launch bench`, learns from them, and measures three others. The
exit status is 0 when the median error of the predicted TPOT, and that of the throughput, is within
the limit, 20 %. Runs that compete with other work are not repeatable: on a machine that is not
idle, `--repeats 3` measures every load three times, in turns, learns from all runs and compares
with the median run. `--short` takes fewer requests.
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

Load = tuple[int, int, int, int]

# clients, prompt, answer, requests
LEARNED: tuple[Load, ...] = ((1, 128, 48, 8), (4, 256, 48, 16), (8, 64, 64, 24))
OTHERS: tuple[Load, ...] = ((2, 200, 48, 10), (6, 100, 64, 18), (8, 256, 48, 16))
LIMIT = 0.2
_SECONDS = 900
_SHORT_ROUNDS = 2
# it learns from no run of fewer requests
_FEWEST = 5


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


def bench(name: str, load: Load, file: Path, state: str) -> dict[str, Any]:
    """Return one run as `bench --json` prints it."""
    clients, prompt, answer, requests = (str(number) for number in load)
    options = (
        "-i",
        prompt,
        "-o",
        answer,
        "--concurrency",
        clients,
        "--requests",
        requests,
        "--tool",
        "builtin",
    )
    found: dict[str, Any] = json.loads(
        command("bench", name, *options, "--save", str(file), "--json", state=state)
    )
    return found


def shortened(loads: tuple[Load, ...]) -> tuple[Load, ...]:
    """Return the same loads with as few requests as `bench --learn` accepts."""
    return tuple((*load[:3], max(_FEWEST, _SHORT_ROUNDS * load[0])) for load in loads)


def measure(
    name: str, folder: str, loads: tuple[tuple[Load, ...], tuple[Load, ...]], repeats: int
) -> list[Any]:
    """Learn from the first loads; return the runs of each of the others."""
    learned, others = loads
    files = []
    for repeat in range(repeats):
        for number, load in enumerate(learned):
            files.append(Path(folder) / f"learned-{number}-{repeat}.json")
            bench(name, load, files[-1], folder)
    print(command("bench", "--learn", *map(str, files), state=folder), flush=True)
    runs: list[list[dict[str, Any]]] = [[] for _ in others]
    for repeat in range(repeats):
        for number, load in enumerate(others):
            runs[number].append(
                bench(name, load, Path(folder) / f"other-{number}-{repeat}.json", folder)
            )
    return runs


def compare(loads: tuple[Load, ...], runs: list[Any]) -> dict[str, float]:
    """Print predicted and measured values; return the median error of each measure."""
    errors: dict[str, list[float]] = {"tpot": [], "throughput": []}
    for load, repeated in zip(loads, runs, strict=True):
        predicted = repeated[0]["predicted"]
        expected = {
            "tpot": predicted["tpot_seconds"]["expected"],
            "throughput": predicted["throughput"]["output_tokens_per_second"]["expected"],
        }
        measured = {
            "tpot": [run["summary"]["tpot"]["p50"] for run in repeated],
            "throughput": [run["summary"]["output_rate"] for run in repeated],
        }
        for measure, values in measured.items():
            middle = statistics.median(values)
            errors[measure].append(abs(expected[measure] / middle - 1))
            each = ", ".join(f"{value:.4g}" for value in values)
            print(
                f"{load} {measure}: predicted {expected[measure]:.4g}, measured {middle:.4g} "
                f"(runs: {each})"
            )
    return {measure: statistics.median(found) for measure, found in errors.items()}


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--name", default="learn-acceptance")
    reader.add_argument("--port", default="31879")
    reader.add_argument("--repeats", type=int, default=1)
    reader.add_argument("--short", action="store_true")
    reader.add_argument("--limit", type=float, default=LIMIT)
    asked = reader.parse_args()
    loads = (shortened(LEARNED), shortened(OTHERS)) if asked.short else (LEARNED, OTHERS)
    with tempfile.TemporaryDirectory() as folder:
        where = ("--name", asked.name, "--port", asked.port, "--detach")
        command("serve", "demo", "--engine", "cpu", *where, state=folder)
        try:
            runs = measure(asked.name, folder, loads, asked.repeats)
        finally:
            command("stop", asked.name, state=folder)
    middle = compare(loads[1], runs)
    print(", ".join(f"{measure}: median error {error:.0%}" for measure, error in middle.items()))
    return 0 if max(middle.values()) <= asked.limit else 1


if __name__ == "__main__":
    raise SystemExit(main())
