"""Every metric of the exporter, for dashboards and alert rules too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "gaudi_launch_"


@dataclass(frozen=True)
class Metric:
    """A metric: its kind (``gauge``, ``counter``, ``summary``), help text and labels.

    The name has no prefix; Prometheus adds ``_total`` to a counter's, ``_sum`` and ``_count`` to
    a summary's.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Return the names of its time series."""
        endings = {"gauge": ("",), "counter": ("_total",), "summary": ("_sum", "_count")}
        return tuple(f"{PREFIX}{self.name}{ending}" for ending in endings[self.kind])


def _metrics() -> tuple[Metric, ...]:
    service, module = ("service",), ("module",)
    return (
        Metric(
            "service_info",
            "gauge",
            "A service, by its labels",
            ("service", "model", "engine", "url"),
        ),
        Metric("service_up", "gauge", "1 while the service's launcher lives", service),
        Metric(
            "service_phase", "gauge", "1 for the phase that the service is in", ("service", "phase")
        ),
        Metric(
            "service_phase_items_done",
            "gauge",
            "Items (graphs, shards) done in this phase",
            service,
        ),
        Metric("service_phase_items", "gauge", "Items of this phase, where known", service),
        Metric(
            "service_phase_seconds", "gauge", "Seconds of each ended phase", ("service", "phase")
        ),
        Metric(
            "service_warmup_seconds",
            "gauge",
            "Seconds of the warm-up, as the engine logs them",
            service,
        ),
        Metric("service_began_timestamp_seconds", "gauge", "When the service began", service),
        Metric("service_ready_timestamp_seconds", "gauge", "When it answered first", service),
        Metric(
            "service_card",
            "gauge",
            "1 for each card (module) of the service",
            ("service", "module"),
        ),
        Metric("service_restarts", "counter", "Restarts after a failure", service),
        Metric(
            "service_run_time_compiles",
            "counter",
            "Shapes outside the buckets, compiled at run time",
            service,
        ),
        Metric("service_requests_running", "gauge", "Requests that the engine works on", service),
        Metric("service_requests_waiting", "gauge", "Requests in the engine's queue", service),
        Metric("service_kv_use_ratio", "gauge", "Used part of the KV cache", service),
        Metric(
            "service_preemptions",
            "counter",
            "Requests that lost their KV cache and start again",
            service,
        ),
        Metric("service_generated_tokens", "counter", "Generated tokens", service),
        Metric("service_prompt_tokens", "counter", "Prompt tokens", service),
        Metric("service_ttft_seconds", "summary", "Time to first token", service),
        Metric("service_tpot_seconds", "summary", "Time per output token", service),
        Metric("service_power_watts", "gauge", "Measured power of the service's cards", service),
        Metric(
            "service_energy_joules",
            "counter",
            "Measured energy of its cards since the exporter began",
            service,
        ),
        Metric("cards_read", "gauge", "1 when the cards could be read"),
        Metric("hl_smi_answers", "gauge", "1 when hl-smi gave the cards' values"),
        Metric(
            "card_busy",
            "gauge",
            "1 when a process uses the card, 0 when free",
            ("module", "product", "bus"),
        ),
        Metric("card_present", "gauge", "0 when hl-smi lists a card no longer", module),
        Metric("card_operational", "gauge", "1 when the driver's status is Operational", module),
        Metric("card_utilization_ratio", "gauge", "Utilisation as hl-smi reports it", module),
        Metric("card_memory_used_bytes", "gauge", "Memory in use", module),
        Metric("card_memory_total_bytes", "gauge", "Memory of the card", module),
        Metric("card_temperature_celsius", "gauge", "Temperature", module),
        Metric("card_power_watts", "gauge", "Power", module),
        Metric("card_power_cap_watts", "gauge", "Power limit", module),
        Metric(
            "card_throttled", "gauge", "1 when a throttle counter grew between two readings", module
        ),
        Metric("card_ports_down", "gauge", "Network ports without a link", module),
        Metric(
            "card_uncorrectable_events",
            "gauge",
            "Uncorrectable events since the driver was loaded",
            module,
        ),
        Metric("node_cpu_use_ratio", "gauge", "CPU use of a NUMA node", ("node",)),
        Metric("node_hugepages", "gauge", "2 MiB huge pages of a NUMA node", ("node",)),
        Metric("node_hugepages_free", "gauge", "Free 2 MiB huge pages of a NUMA node", ("node",)),
        Metric(
            "disk_size_bytes",
            "gauge",
            "Size of the file system of recipes, models or state",
            ("use",),
        ),
        Metric("disk_free_bytes", "gauge", "Free space of this file system", ("use",)),
    )


METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _metrics()}
SERIES = frozenset(name for metric in METRICS.values() for name in metric.series)
