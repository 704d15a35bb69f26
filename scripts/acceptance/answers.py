"""Compare the p95 of `estimate` with vLLM's scheduler under a virtual clock.

`answers.py [--seed N]`

Twelve loads are drawn: four recorded ones with bursts, two close to the most, two with prefix
caching, two closed loops of 1 and 128 clients, two with lengths over two orders of magnitude. The
scheduler is that of the CPU engine (scripts/acceptance/virtual_clock.py), with the step times and
the limits of the plan; of drawn loads it gets requests in another order, at other times. Close to
the most, where that alone changes a p95 by more, both get the same 5,000 requests. The exit status
is 0 when every p95 of TTFT, TPOT and E2E latency is within 6 %.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaudi_launch.commands.estimate import EstimateOptions, predicted
from gaudi_launch.core.launch.prediction import SpeedEstimate
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict.simulate import SAFE_SHARE, Outcome, request_delay, simulate
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

CLOCK = Path(__file__).with_name("virtual_clock.py")
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LIMIT = 0.06
_SECONDS = 3600
# requests of the scheduler for a drawn load, for a closed loop, and for one client, who takes a
# step for each token; with 5,000 it takes 0.4 ms of CPU for each of some 30,000 steps
_COUNT, _CLOSED, _ALONE = 5000, 2000, 500
# processes of the scheduler, which uses one core and takes ten seconds to start
_TOGETHER = 2
_OTHER_SEED = 9


@dataclass(frozen=True)
class Case:
    """A load by its options."""

    name: str
    launch: dict[str, str]
    given: dict[str, str]


def bursts(folder: Path, chance: random.Random, name: str, *, shared: bool = False) -> str:
    """Write a trace whose rate changes every half minute; return its path."""
    rows, now, pace = [], 0.0, 1.0
    until = 0.0
    for number in range(chance.choice([3000, 6000])):
        if now >= until:
            pace = chance.choice([0.4, 1.0, 2.2])
            until = now + chance.expovariate(1 / 30)
        now += chance.expovariate(5 * pace)
        tokens = min(6000, 1 + int(chance.lognormvariate(5.5, 1.0)))
        output = min(900, 2 + int(chance.lognormvariate(4.6, 0.8)))
        row: dict[str, Any] = {"timestamp": int(1000 * now), "output_length": output}
        if shared:
            # a beginning of 1024 tokens that one of twenty groups shares
            group = chance.randrange(20)
            tokens += 1024
            row["hash_ids"] = [
                2 * group,
                2 * group + 1,
                *range(100 + 20 * number, 110 + 20 * number),
            ]
            row["hash_ids"] = row["hash_ids"][: -(-tokens // 512)]
        rows.append({**row, "input_length": tokens})
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(file)


def cases(folder: Path, seed: int) -> list[Case]:
    """Return twelve loads."""
    chance = random.Random(seed)
    plain = {"cards": "1", "max_num_seqs": "128", "max_prefill_seqs": "1", "dtype": "bf16"}
    found = []
    for number in range(4):
        trace = bursts(folder, chance, f"bursts{number}")
        rate = f"{chance.uniform(4, 13):.2f}/s"
        found.append(Case(f"bursts at {rate}", plain, {"trace": trace, "rate": rate}))
    lengths = {**plain, "input_range": "100,1000", "output_range": "50,300"}
    found += [
        Case(f"close to the most, {rate}", lengths, {"rate": rate}) for rate in ("13.6/s", "14.4/s")
    ]
    for number in range(2):
        trace = bursts(folder, chance, f"shared{number}", shared=True)
        rate = f"{chance.uniform(2, 6):.2f}/s"
        found.append(Case(f"shared prefixes at {rate}", plain, {"trace": trace, "rate": rate}))
    for clients in ("1", "128"):
        found.append(Case(f"{clients} clients", lengths, {"concurrency": clients}))
    wide = {**plain, "input_range": "40,4000", "output_range": "8,800"}
    for _ in range(2):
        rate = f"{chance.uniform(1.5, 4):.2f}/s"
        found.append(Case(f"wide lengths at {rate}", wide, {"rate": rate}))
    return found


def close_to_most(made: Outcome) -> bool:
    """Return True for a drawn load at which p95 of two seeds differ."""
    return not made.load.recorded and made.rate > SAFE_SHARE * made.full > 0


def sent_by(made: Outcome) -> list[list[Any]]:
    """Return the requests for the scheduler, as `virtual_clock.Case` has them."""
    load = made.load
    count = None
    if not load.recorded:
        count = {0: _COUNT, 1: _ALONE}.get(load.clients, _CLOSED)
    sent = load.sent(count, 0 if close_to_most(made) else _OTHER_SEED)
    pace = load.rate or 1.0
    rows = []
    for number, (time, tokens, output) in enumerate(sent.requests):
        group, shared = 0, 0
        if load.shared and load.shared[number].tokens:
            shared = 1024
        if load.shared:
            group = number % 20
        rows.append([time / pace, tokens, output, group, shared])
    return rows


def to_clock(found: SpeedEstimate) -> dict[str, Any]:
    """Return the case of virtual_clock.py."""
    made = found.outcome
    limits = made.setup.limits
    return {
        "requests": sent_by(made),
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "num_blocks": limits.physical_blocks,
        "cost": made.setup.speed.cost.constants(),
        "ahead": limits.ahead,
        "concurrency": made.load.clients,
        "prefix_caching": bool(made.load.shared),
    }


def scheduled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what vLLM's scheduler did with each case, in several processes."""
    shares = [rows[begin::_TOGETHER] for begin in range(_TOGETHER)]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(_scheduled, shares))
    return [done[at % _TOGETHER][at // _TOGETHER] for at in range(len(rows))]


def _scheduled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps({"cases": rows}), encoding="utf-8")
        command = [str(EMBEDDED.python()), str(CLOCK), str(file)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=True
        )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def ours(found: Outcome) -> Outcome:
    """Return the outcome to compare; near saturation that of the same requests."""
    if not close_to_most(found):
        return found
    made = simulate(found.setup, found.load, most=_COUNT)
    assert made is not None, "the engine accepts these lengths"
    return made


def theirs(made: Outcome, case: dict[str, Any], record: dict[str, Any]) -> dict[str, float]:
    """Return the p95 of the scheduler's run, in seconds.

    With the delay of the API server.
    """
    came, first, done = (np.asarray(record[name]) for name in ("came", "first", "done"))
    output = np.asarray([request[2] for request in case["requests"]])
    settled = slice(None) if made.load.recorded else slice(len(came) // 10, None)
    if made.load.clients:
        settled = slice(made.load.clients, len(came) - made.load.clients)
    delay = 0.0 if made.load.clients else request_delay()
    came, first, done, output = (each[settled] for each in (came, first, done, output))
    several = output > 1
    each = (done - first)[several] / (output[several] - 1)
    rows = {"ttft": first - came + delay, "tpot": each, "e2e": done - came + delay}
    return {name: float(np.nanpercentile(values, 95)) for name, values in rows.items()}


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seed", type=int, default=37)
    given = reader.parse_args()
    if not EMBEDDED.is_ready():
        print("the CPU engine is not installed: run `gaudi-launch setup cpu`", file=sys.stderr)
        return 3
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        asked = cases(Path(folder), given.seed)
        found = [
            predicted(
                LaunchOptions(model=MODEL, machine="gaudi2", **each.launch),  # type: ignore[arg-type]
                EstimateOptions(**each.given),  # type: ignore[arg-type]
            )
            for each in asked
        ]
    rows = [to_clock(each) for each in found]
    for case, one, row, record in zip(asked, found, rows, scheduled(rows), strict=True):
        made = ours(one.outcome)
        real = theirs(made, row, record)
        words = []
        for name, latency in (("ttft", made.ttft), ("tpot", made.tpot), ("e2e", made.e2e)):
            mine, value = latency.at(95), real[name]
            good = abs(mine / value - 1) <= LIMIT
            wrong += not good
            words.append(f"{name} {1000 * mine:.1f} / {1000 * value:.1f} ms{'' if good else ' !'}")
        print(f"{case.name:28} {made.requests * made.seeds:7,} simulated  {', '.join(words)}")
    print(f"{wrong} figures beyond the limit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
