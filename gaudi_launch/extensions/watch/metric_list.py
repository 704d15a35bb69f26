"""Every metric of the exporter, from metrics.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.reader import read_json

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


METRICS: Mapping[str, Metric] = {
    name: Metric(name, row["kind"], row["text"], tuple(row["labels"]))
    for name, row in read_json(Path(__file__).with_name("metrics.json")).items()
}
SERIES = frozenset(name for metric in METRICS.values() for name in metric.series)
