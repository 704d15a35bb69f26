"""Find shapes that compiled while requests waited, in a server's log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# 1.21, 1.22, deepseek_r1, vllm-gaudi: hpu_model_runner.py; the phase may be quoted, numbers may be
# fewer
_CONFIGURATION = re.compile(
    r"Configuration: \(\s*'?(prompt|decode)'?\s*((?:,\s*\d+\s*)+)\) was not warmed-up"
)
# 1.22 and vllm-gaudi: bucketing/common.py
_PREPARED = re.compile(r"(Prompt|Decode) bucket for \((\d+(?:, \d+)*)\)\s*was not prepared")
# tensor parallel workers repeat each line after this prefix; one stream is enough
_WORKER = re.compile(r"\((?:VllmWorkerProcess|RayWorkerWrapper|Worker_TP[1-9]\d*)\b")


@dataclass(frozen=True)
class Compiled:
    """A shape without a graph, and how often the log reports it."""

    phase: str
    shape: tuple[int, ...]
    times: int


def compiled_at_run_time(lines: Iterable[str]) -> list[Compiled]:
    """Return the shapes that a log reports as not warmed up, most frequent first."""
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for line in lines:
        if _WORKER.search(line):
            continue
        match = _CONFIGURATION.search(line) or _PREPARED.search(line)
        if match:
            shape = tuple(int(number) for number in re.findall(r"\d{1,12}", match.group(2)))
            counts[match.group(1).lower(), shape] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Compiled(phase, shape, times) for (phase, shape), times in ordered]
