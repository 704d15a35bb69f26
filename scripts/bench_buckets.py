"""Our bucket plans against each engine strategy, on traffic they have not seen.

    python scripts/bench_buckets.py TRACE.csv.gz ...

Trains on the first part of each trace (default 60 %) and scores the rest, with one prompt a prefill
step (P=1) and with as many as there may be sequences (P=B). Step times are the assumed model of
gaudi_launch/core/predict/step_time.py.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER, EVERY_CONTEXT, PLAIN_GRID
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal, plan
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.past_requests import RequestLengths, read_past
from gaudi_launch.core.buckets.strategies import arguments_of, script_ranges
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, serve
from gaudi_launch.core.predict.step_time import EIGHT_CARDS_32B, ONE_CARD_8B, StepTime

_AZURE = EngineLimits(128, 1, 16384, 16384, 3600, 4, 14336, 4, 2048)
_ARXIV = EngineLimits(64, 1, 8192, 8192, 3600, 4, 4096, 4, 4096)
_MOONCAKE = EngineLimits(24, 1, 40960, 40960, 7728, 4, 38912, 4, 2048)
# what serves a trace of this name, how much slower its arrivals come, and the step times
SETTINGS: tuple[tuple[str, EngineLimits, float, StepTime], ...] = (
    ("arxiv", _ARXIV, 1.0, ONE_CARD_8B),
    ("mooncake-conv", _MOONCAKE, 2.0, EIGHT_CARDS_32B),
    ("mooncake-synth", _MOONCAKE, 2.5, EIGHT_CARDS_32B),
    ("", _AZURE, 1.0, ONE_CARD_8B),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument(
        "--train", type=float, default=0.6, help="share of the time span to train on"
    )
    options = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 160)
    table = Table(
        "trace", "P", "plan", "graphs", "overhead", "uncovered", "seconds", title="held-out part"
    )
    for column in table.columns[3:]:
        column.justify = "right"
    for name in options.traces:
        _, limits, slower, cost = next(
            entry for entry in SETTINGS if Path(name).name.startswith(entry[0])
        )
        requests = [
            (t * slower, i, o) for t, i, o in read_past(name).requests if i <= limits.input_max
        ]
        for prompts in (1, limits.max_num_seqs):
            bench(
                table,
                Path(name).name.split(".")[0],
                requests,
                replace(limits, max_num_prefill_seqs=prompts),
                cost,
                options.train,
            )
        table.add_section()
    console.print(table)


def bench(
    table: Table,
    name: str,
    requests: list[RequestLengths],
    limits: EngineLimits,
    cost: StepTime,
    share: float,
) -> None:
    """Return all plans of one trace and one prefill batch."""
    cut = requests[-1][0] * share
    seen = [request for request in requests if request[0] < cut]
    later = [(t - cut, i, o) for t, i, o in requests if t >= cut]
    prompts = limits.max_num_prefill_seqs
    shapes = serve(later, limits, cost)[0]

    def row(label: str, buckets: Buckets, seconds: float = math.nan) -> None:
        result = score(buckets, shapes, cost)
        took = "" if math.isnan(seconds) else f"{seconds:.2f}"
        overhead = f"{100 * result.overhead:.2f} %" + (
            f" ({100 * result.outside:.1f} % out)" if result.outside else ""
        )
        holes = uncovered(buckets, limits).shapes
        table.add_row(name, str(prompts), label, str(buckets.graphs), overhead, str(holes), took)

    oracle_ask = 0.0
    for label, env, engine, algorithm in (
        (
            "vllm-gaudi pad",
            {"VLLM_CONTIGUOUS_PA": "true", "VLLM_PROMPT_CTX_BUCKET_MAX": "0"},
            CONTEXT_LADDER,
            "pad",
        ),
        ("vllm-gaudi exponential", {"VLLM_CONTIGUOUS_PA": "true"}, CONTEXT_LADDER, "exponential"),
        ("1.22 linear-limit", script_ranges(EVERY_CONTEXT, limits), EVERY_CONTEXT, "linear-limit"),
        ("1.21 linear", script_ranges(PLAIN_GRID, limits), PLAIN_GRID, "linear"),
    ):
        found = engine_buckets(engine, algorithm, env, arguments_of(limits))
        # only buckets without cached context are compared: these prompts have no prefix
        found = Buckets([bucket for bucket in found.prompt if bucket[2] == 0], found.decode)
        row(label, found)
        if algorithm == "pad":
            oracle_ask = score(found, shapes, cost).overhead
    for label, workload in (("ours, trace", seen), ("ours, ranges only", None)):
        start = time.perf_counter()
        made = plan(limits, workload, cost=cost)
        row(label, made.buckets, time.perf_counter() - start)
    row("ours, trace, at pad's overhead", _at(limits, seen, shapes, cost, oracle_ask))


def _at(
    limits: EngineLimits,
    seen: list[RequestLengths],
    shapes: Shapes,
    cost: StepTime,
    overhead: float,
) -> Buckets:
    """Return the coarsest plan with at most this held-out overhead.

    The price is picked with hindsight.
    """
    low, high = 1e-5, 1e-1
    best = plan(limits, seen, BucketGoal(price=low), cost=cost).buckets
    for _ in range(10):
        middle = math.sqrt(low * high)
        made = plan(limits, seen, BucketGoal(price=middle), cost=cost).buckets
        if score(made, shapes, cost).overhead <= overhead:
            low, best = middle, made
        else:
            high = middle
    return best


if __name__ == "__main__":
    main()
