"""Compare the serving simulator with vLLM's scheduler under a virtual clock.

`scheduler.py [--traces FOLDER]`

The scheduler is that of the CPU engine (`gaudi-launch setup cpu`), run by
scripts/acceptance/virtual_clock.py with the step times of the simulator, so that scheduling is
compared and nothing else. Three traces at 30, 50, 80 and 90 % of the peak rate, 2,000 requests
each. The exit status is 0 when every p50, p90 and p95 of time to first token and of time per token
and the throughput are within 6 %, and every p99 within 10 %. `--short` takes made-up lengths and a
few hundred requests; `--record FILE` keeps what the scheduler did, with the requests, for tests
without the engine.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import from_trace
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import ServedSetup, most_rate
from gaudi_launch.core.predict.simulator import Times, serve
from gaudi_launch.core.predict.step_model import Setup as Division
from gaudi_launch.core.predict.step_time import EIGHT_CARDS_32B, ONE_CARD_8B, StepTime
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

CLOCK = Path(__file__).with_name("virtual_clock.py")
SHARES = (0.3, 0.5, 0.8, 0.9)
PERCENTILES = (50, 90, 95, 99)
LIMIT, LIMIT_P99 = 0.06, 0.10
_SECONDS = 3600
_COUNT, _SHORT = 2000, 300
_ONE_CARD = EngineLimits(128, 1, 2048, 16384, 3600, 1, 16383, 1, 16384, mixed_steps=True)
_EIGHT_CARDS = EngineLimits(24, 1, 2048, 40960, 7728, 1, 40959, 1, 40960, mixed_steps=True)

Request = tuple[float, int, int]


@dataclass(frozen=True)
class Comparison:
    """One workload at one load."""

    name: str
    requests: tuple[Request, ...]
    limits: EngineLimits
    cost: StepTime

    def to_case(self) -> dict[str, Any]:
        """Return the case of virtual_clock.py."""
        limits = self.limits
        return {
            "requests": [[*request, 0, 0] for request in self.requests],
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_model_len": limits.max_model_len,
            "num_blocks": limits.num_blocks,
            "cost": self.cost.constants(),
            "ahead": limits.ahead,
        }


def setup_of(limits: EngineLimits, cost: StepTime) -> ServedSetup:
    """Return an engine with these step times; only they are simulated."""
    shape = Shape(1, 1, 1, 1, 1, 1, 1, 1, 1)
    return ServedSetup(limits, Speed(cost, Division("gaudi2", 1, "bf16", 2.0, 2.0, "v1"), shape))


def figures(times: Times) -> dict[str, float]:
    """Return the percentiles of both latencies in seconds, and the output rate.

    It is in tokens per second.
    """
    import numpy as np

    several = times.output > 1
    waited = times.first - times.came
    each = (times.done - times.first)[several] / (times.output[several] - 1)
    found = {}
    for percentile in PERCENTILES:
        found[f"ttft_p{percentile}"] = float(np.percentile(waited, percentile))
        found[f"tpot_p{percentile}"] = float(np.percentile(each, percentile))
    found["throughput"] = float(times.output.sum() / (times.done.max() - times.came.min()))
    return found


def simulated(comparison: Comparison) -> dict[str, float]:
    """Return the figures of the simulator."""
    return figures(serve(comparison.requests, comparison.limits, comparison.cost)[1])


def scheduled(comparisons: list[Comparison]) -> list[dict[str, float]]:
    """Return the figures of vLLM's scheduler."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(
            json.dumps({"cases": [each.to_case() for each in comparisons]}), encoding="utf-8"
        )
        command = [str(EMBEDDED.python()), str(CLOCK), str(file)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=True
        )
    found = []
    for comparison, record in zip(comparisons, json.loads(done.stdout), strict=True):
        output = np.asarray([output for _, _, output in comparison.requests])
        came, first, ended = (np.asarray(record[name]) for name in ("came", "first", "done"))
        found.append(figures(Times(came, first, ended, output)))
    return found


def beyond(ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Return the names of the figures that are further apart than allowed."""
    found = []
    for name, value in theirs.items():
        limit = LIMIT_P99 if name.endswith("_p99") else LIMIT
        if abs(ours[name] / value - 1) > limit:
            found.append(name)
    return found


def of_traces(folder: Path) -> list[Comparison]:
    """Return the comparisons of three traces.

    The engines are those of facts/bucket-planning.md.
    """
    found: list[Comparison] = []
    for name, limits, cost in (
        ("azure-2023-conv", _ONE_CARD, ONE_CARD_8B),
        ("azure-2023-code", _ONE_CARD, ONE_CARD_8B),
        ("mooncake-conversation", _EIGHT_CARDS, EIGHT_CARDS_32B),
    ):
        with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8") as lines:
            rows = [
                (int(row["input_tokens"]), int(row["output_tokens"]))
                for row in csv.DictReader(lines)
            ]
        found += at_shares(
            name, [row for row in rows if sum(row) <= limits.max_model_len], limits, cost, _COUNT
        )
    return found


def made_up() -> list[Comparison]:
    """Return comparisons of drawn lengths.

    Also with preemptions, and with steps that are not planned ahead.
    """
    chance = random.Random(5)
    lengths = [
        (
            min(6000, 1 + int(chance.lognormvariate(6.5, 1.0))),
            min(1500, 2 + int(chance.lognormvariate(4.5, 0.8))),
        )
        for _ in range(4000)
    ]
    small = replace(_ONE_CARD, num_blocks=220, max_num_seqs=48)
    found = at_shares("made up", lengths, _ONE_CARD, ONE_CARD_8B, _SHORT)
    found += at_shares("full cache", lengths, small, ONE_CARD_8B, _SHORT, shares=(2.0,))
    waits = replace(_ONE_CARD, ahead=False)
    return found + at_shares("one step", lengths, waits, ONE_CARD_8B, _SHORT, shares=(0.8,))


def at_shares(
    name: str,
    lengths: list[tuple[int, int]],
    limits: EngineLimits,
    cost: StepTime,
    count: int,
    *,
    shares: tuple[float, ...] = SHARES,
) -> list[Comparison]:
    """Return one comparison for each share of the peak rate; the seed is fixed."""
    chance = random.Random(11)
    drawn = [chance.choice(lengths) for _ in range(count)]
    gaps = [chance.expovariate(1.0) for _ in drawn]
    peak = most_rate(setup_of(limits, cost), from_trace([(0.0, *pair) for pair in drawn]))
    assert peak is not None, "it accepts some of them"
    found = []
    for share in shares:
        now = 0.0
        requests = []
        for gap, (tokens, output) in zip(gaps, drawn, strict=True):
            now += gap / (share * peak)
            requests.append((round(now, 4), tokens, output))
        found.append(Comparison(f"{name} {share:.0%}", tuple(requests), limits, cost))
    return found


def record(file: Path, comparisons: list[Comparison], theirs: list[dict[str, float]]) -> None:
    """Keep the scheduler's figures with the workloads."""
    rows = []
    for comparison, found in zip(comparisons, theirs, strict=True):
        rows.append(
            {
                "name": comparison.name,
                "case": {
                    **comparison.to_case(),
                    "requests": [list(each) for each in comparison.requests],
                },
                "figures": {name: round(value, 6) for name, value in found.items()},
            }
        )
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument(
        "--traces", type=Path, default=Path(__file__).parents[3] / "shared" / "traces"
    )
    reader.add_argument("--short", action="store_true")
    reader.add_argument("--record", type=Path)
    given = reader.parse_args()
    if not EMBEDDED.is_ready():
        print("the CPU engine is not installed: run `gaudi-launch setup cpu`", file=sys.stderr)
        return 3
    comparisons = made_up() if given.short else of_traces(given.traces)
    theirs = scheduled(comparisons)
    began = time.process_time()
    ours = [simulated(each) for each in comparisons]
    seconds = time.process_time() - began
    wrong = 0
    for comparison, mine, real in zip(comparisons, ours, theirs, strict=True):
        far = beyond(mine, real)
        wrong += len(far)
        most = max(abs(mine[name] / value - 1) for name, value in real.items())
        shown = f"p95 TTFT {1000 * mine['ttft_p95']:.0f} / {1000 * real['ttft_p95']:.0f} ms"
        shown += f", p95 TPOT {1000 * mine['tpot_p95']:.1f} / {1000 * real['tpot_p95']:.1f} ms"
        print(f"{comparison.name:28} {shown}, largest difference {most:.2%} {' '.join(far)}")
    requests = sum(len(each.requests) for each in comparisons)
    print(f"{requests} requests simulated in {seconds:.2f} s; {wrong} figures beyond the limits")
    if given.record:
        record(given.record, comparisons, theirs)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
