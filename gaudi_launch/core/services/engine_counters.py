"""An engine's counters on /metrics, and the rates between two readings.

Names: vllm/v1/metrics/loggers.py of vLLM 0.9 to 0.32 and the fork's vllm/engine/metrics.py (docs:
Production Metrics), TGI's router/src/server.rs. What an engine does not export is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gaudi_launch.core.base.metrics_page import samples
from gaudi_launch.core.services.server_request import ask

_NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "tgi_batch_current_size"),
    "waiting": ("vllm:num_requests_waiting", "tgi_queue_size"),
    "kv_use": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "preemptions": ("vllm:num_preemptions_total",),
    "generated": ("vllm:generation_tokens_total", "tgi_request_generated_tokens_sum"),
    "prompted": ("vllm:prompt_tokens_total", "tgi_request_input_length_sum"),
    "ttft_sum": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
    "tpot_sum": (
        "vllm:inter_token_latency_seconds_sum",
        "vllm:time_per_output_token_seconds_sum",
        "tgi_request_mean_time_per_token_duration_sum",
    ),
    "tpot_count": (
        "vllm:inter_token_latency_seconds_count",
        "vllm:time_per_output_token_seconds_count",
        "tgi_request_mean_time_per_token_duration_count",
    ),
}
# of several engines in one server (data parallel) the fullest cache counts, all else is summed
_TOTALS: Mapping[str, Callable[[list[float]], float]] = {"kv_use": max}
_ALL = frozenset(name for names in _NAMES.values() for name in names)
# an engine's name of the metric, and what follows it: labels or a value
_AFTER = ("{", " ")


@dataclass(frozen=True)
class EngineCounters:
    """One reading of an engine.

    Counters grow until the engine restarts; ``kv_use`` is from 0 to 1.
    """

    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None
    preemptions: float | None = None
    generated: float | None = None
    prompted: float | None = None
    ttft_sum: float | None = None
    ttft_count: float | None = None
    tpot_sum: float | None = None
    tpot_count: float | None = None

    def values(self) -> dict[str, float | None]:
        return asdict(self)


COUNTER_FIELDS = tuple(field.name for field in fields(EngineCounters))


@dataclass(frozen=True)
class EngineRates:
    """Rates between two readings: tokens per second, mean TTFT and TPOT in seconds."""

    tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


def read_counters(page: str) -> EngineCounters | None:
    """Return the counters of a page; None when it has none of them."""
    # a page has thousands of lines of histograms: only ours are parsed
    lines = [line for line in page.splitlines() if _is_ours(line)]
    found: dict[str, list[float]] = {}
    for sample in samples("\n".join(lines) + "\n"):
        found.setdefault(sample.name, []).append(float(sample.value))
    if not found:
        return None
    values: dict[str, Any] = {}
    for field, names in _NAMES.items():
        readings = next((found[name] for name in names if name in found), [])
        total = _TOTALS.get(field, sum)(readings) if readings else math.nan
        # the sum of finite numbers may be infinite
        if math.isfinite(total):
            values[field] = total
    return EngineCounters(**values)


def _is_ours(line: str) -> bool:
    if not line.startswith(("vllm:", "tgi_")):
        return False
    end = min((at for at in (line.find(mark) for mark in _AFTER) if at >= 0), default=-1)
    return line[:end] in _ALL


def counters_of(url: str, timeout: float = 2.0) -> EngineCounters | None:
    """Return the counters of the engine at this base URL.

    Return None when it does not answer in time.
    """
    answer = ask(f"{url}/metrics", timeout)
    if answer.status != 200:
        return None
    return read_counters(answer.body.decode("utf-8", errors="replace"))


def rates(before: EngineCounters, after: EngineCounters, seconds: float) -> EngineRates:
    """Return the rates between two readings.

    They are None where the engine restarted in between.
    """
    if seconds <= 0:
        return EngineRates()
    generated = grown(before.generated, after.generated)
    prompted = grown(before.prompted, after.prompted)
    return EngineRates(
        tokens_per_second=_mean(generated, seconds),
        prompt_tokens_per_second=_mean(prompted, seconds),
        ttft_seconds=_mean(
            grown(before.ttft_sum, after.ttft_sum), grown(before.ttft_count, after.ttft_count)
        ),
        tpot_seconds=_mean(
            grown(before.tpot_sum, after.tpot_sum), grown(before.tpot_count, after.tpot_count)
        ),
    )


def grown(before: float | None, after: float | None) -> float | None:
    """Return the growth of a counter; None where it is unknown or began again."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _mean(total: float | None, count: float | None) -> float | None:
    """Return ``total`` by ``count``; None where nothing was counted."""
    if total is None or not count:
        return None
    return total / count
