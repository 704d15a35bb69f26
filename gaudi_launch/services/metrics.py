"""An engine's load on /metrics, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gaudi_launch.background import in_background
from gaudi_launch.metrics_page import samples
from gaudi_launch.services.probe import ask

# vllm/v1/metrics/loggers.py and the fork's vllm/engine/metrics.py; TGI's router/src/infer
_RUNNING = ("vllm:num_requests_running", "tgi_batch_current_size")
_WAITING = ("vllm:num_requests_waiting", "tgi_queue_size")


@dataclass(frozen=True)
class EngineLoad:
    """Numbers of running and waiting requests."""

    running: int
    waiting: int


def read_load(text: str) -> EngineLoad | None:
    """Return the load in a page of metrics, summed over engines.

    Return None when it names no requests.
    """
    sums: dict[str, float] = {}
    for sample in samples(text):
        if sample.name in _RUNNING or sample.name in _WAITING:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    running = [sums[name] for name in _RUNNING if name in sums]
    waiting = [sums[name] for name in _WAITING if name in sums]
    if not running and not waiting:
        return None
    return EngineLoad(_whole(running), _whole(waiting))


def _whole(values: Sequence[float]) -> int:
    total = sum(values)
    if 0 <= total < 1e12:
        return int(total)
    return 0


def requests_of(url: str, timeout: float = 2.0) -> EngineLoad | None:
    """Return the load of the engine at this base URL.

    Return None when it does not answer in time.
    """
    answer = ask(f"{url}/metrics", timeout)
    if answer.status != 200:
        return None
    return read_load(answer.body.decode("utf-8", errors="replace"))


def loads(urls: Mapping[str, str], seconds: float) -> dict[str, EngineLoad]:
    """Return loads by name, all queried at the same time.

    Those that did not answer in this time are left out.
    """
    found: dict[str, EngineLoad] = {}

    def look(name: str, url: str) -> None:
        load = requests_of(url, seconds)
        if load is not None:
            found[name] = load

    threads = [in_background(partial(look, name, url)) for name, url in urls.items()]
    for thread in threads:
        thread.join(seconds)
    return dict(found)
