"""Records of the acceptance test: a step, a measurement, a result, a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.yaml_reader import shipped

# the figure passed, is slower, is too low, or has no limit
JUDGED = ("pass", "warn", "fail", "reported")
# a fault of the measurement itself; not run, as it broke or as something is missing: never a pass
STATUSES = (*JUDGED, "wrong", "broken", "skipped")


def facts() -> Mapping[str, Any]:
    """Return profiles/acceptance.yaml: steps, durations and limits."""
    return mapping(shipped("acceptance.yaml"))


@dataclass(frozen=True)
class Step:
    """One step, with the fields of profiles/acceptance.yaml."""

    name: str
    level: int
    by: str
    timeout: float
    needs: tuple[str, ...] = ()
    remedy: str = ""
    seconds: float = 0.0
    unit: str = ""
    dtype: str = "bf16"
    group: int = 0
    loops: int = 0
    options: tuple[str, ...] = ()

    @property
    def title(self) -> Message:
        return Message(f"accept.step.{self.name}")

    @property
    def limit(self) -> Mapping[str, Any]:
        """Return its limits by product, with what they are shares of."""
        return mapping(facts()["limits"].get(self.name))


@lru_cache(maxsize=1)
def all_steps() -> Mapping[str, Step]:
    """Return the steps by name, in the order of a run."""
    rows = facts()["steps"]
    return {name: codec.read(Step, {"name": name, **row}) for name, row in rows.items()}


@dataclass(frozen=True)
class StepMeasurement:
    """The measurement of a step.

    ``values`` by card, group of cards or name, ``peaks`` by the same names. ``troubles``: fail or
    warn whatever the figures are, with the reason. ``details`` go into the evidence only.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)
    troubles: Sequence[tuple[str, Message]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    """One step's result.

    ``shares`` of the peak by card or group, ``least`` the share of a pass; ``spread`` between the
    best and the slowest. ``notes`` state what is wrong, or why there is no figure.
    """

    name: str
    status: str
    notes: tuple[Message, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    least: float | None = None
    slowest: str = ""
    spread: float | None = None
    source: str = ""
    seconds: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AcceptanceRun:
    """A run: of which machine and cards, how far it is, and its results.

    ``left_out`` are cards in use with their users, ``scale`` divides the durations (1: a real
    test), ``counters`` those of each card before the first step.
    """

    key: str
    began: float
    level: int
    product: str
    cards: tuple[str, ...]
    left_out: Mapping[str, str]
    scale: float
    counters: Mapping[str, Mapping[str, int]]
    results: tuple[StepResult, ...] = ()
    ended: float = 0.0


@dataclass
class NoFigure(Exception):
    """A step without a figure: ``skipped``, or ``broken`` where it should have run."""

    status: str
    why: Message
    details: Mapping[str, Any] = field(default_factory=dict)


def figure(value: float) -> str:
    """Return a figure with four digits, and with all that are before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
