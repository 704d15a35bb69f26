"""Compare the padding that a plan prints with that of vLLM's own scheduler.

The bucket file of a plan is looked up with the engine's own rule for each forward pass that the
scheduler of the CPU engine makes under a virtual clock (scripts/acceptance/virtual_clock.py), for
the requests of the plan's figure: as many as the engine admits, lengths within the ranges. Prefix
caching on and off. The exit status is 0 when the figures are within one point. A last row, which is
only shown, has prompts that share a prefix of 1,024 tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.buckets.bucket_file import planned
from gaudi_launch.core.buckets.engine_buckets import lookups
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.full_load import range_requests
from gaudi_launch.core.buckets.strategies import arguments_of
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

CLOCK = Path(__file__).with_name("virtual_clock.py")
POINTS = 0.01
_SHARED = 1024
_GROUPS = 8
_SECONDS = 3600
_CHAT = EngineLimits(
    64, 1, 2048, 4096, 3600, 16, 2048, 16, 512, mixed_steps=True, cache_blocks=3600
)
_LONG = EngineLimits(
    128, 1, 2048, 16384, 10800, 1, 14336, 4, 2048, mixed_steps=True, cache_blocks=3600
)


def case_of(limits: EngineLimits, shared: int) -> dict[str, Any]:
    """Return the case of virtual_clock.py for a closed loop within the ranges."""
    requests = range_requests(limits)
    return {
        "requests": [[*each, number % _GROUPS, shared] for number, each in enumerate(requests)],
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "num_blocks": limits.physical_blocks,
        "cost": ONE_CARD_8B.constants(),
        "prefix_caching": limits.prefix_caching,
        "concurrency": limits.max_num_seqs,
    }


def met(record: dict[str, Any], limits: EngineLimits, file: str) -> float:
    """Return the overhead of a bucket file over these forward passes.

    Raises ValueError for one without a bucket.
    """
    rule = lookups(CONTEXT_LADDER, "file", {}, {**arguments_of(limits), "bucket_file": file})
    exact = padded = 0.0
    for tokens, context, count in record["prompts"]:
        found = rule.prompt(1, tokens, context)
        if found.bucket is None or found.outcome != "warmed":
            raise ValueError(f"no bucket for {tokens} tokens behind {context} blocks")
        exact += count * ONE_CARD_8B.in_blocks(1, tokens, context)
        padded += count * ONE_CARD_8B.in_blocks(*found.bucket)
    for batch, blocks, count in record["decodes"]:
        found = rule.decode(batch, blocks)
        if found.bucket is None or found.outcome != "warmed":
            raise ValueError(f"no bucket for {batch} sequences of {blocks} blocks")
        exact += count * ONE_CARD_8B.decode(batch, blocks)
        padded += count * ONE_CARD_8B.decode(found.bucket[0], found.bucket[2])
    return padded / exact - 1


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--short", action="store_true", help="one range of lengths only")
    given = reader.parse_args()
    if not EMBEDDED.is_ready():
        print("the CPU engine is not installed: run `gaudi-launch setup cpu`", file=sys.stderr)
        return 3
    rows: list[tuple[str, EngineLimits, int]] = []
    for name, limits in (("chat", _CHAT), ("long", _LONG))[: 1 if given.short else 2]:
        kept = replace(limits, prefix_caching=True)
        rows += [(f"{name}, no prefix caching", limits, 0), (f"{name}, prefix caching", kept, 0)]
        rows.append((f"{name}, shared prefixes", kept, _SHARED))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        cases = [case_of(limits, shared) for _, limits, shared in rows]
        file.write_text(json.dumps({"cases": cases}), encoding="utf-8")
        command = [str(EMBEDDED.python()), str(CLOCK), str(file)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=True
        )
    wrong = 0
    for (name, limits, shared), record in zip(rows, json.loads(done.stdout), strict=True):
        found = planned(CoverageQuestion(CONTEXT_LADDER, limits), BucketGoal(), ONE_CARD_8B)
        printed = found.full_load[0]
        assert printed is not None and found.file is not None
        real = met(record, limits, found.file)
        far = not shared and abs(real - printed.overhead) > POINTS
        wrong += far
        print(
            f"{name:28} plan {100 * printed.overhead:.2f} %, scheduler {100 * real:.2f} "
            f"%{' FAR' if far else ''}"
        )
    print(f"{wrong} figures beyond one point")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
