"""The goal of a search: what is best, within which limits.

How each goal is measured is `objective`; docs/recommend.md has the same definitions for users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.predict.targets import Targets

GoalName = Literal["balanced", "throughput", "latency", "context", "cost"]
GOALS: tuple[GoalName, ...] = ("balanced", "throughput", "latency", "context", "cost")


@dataclass(frozen=True)
class Goal:
    """A goal with its targets and its load.

    ``rate`` is in requests per second; ``clients`` wait for their answers each. Without either,
    each replica has as many clients as it serves at once. ``most_start``: seconds that the warm-up
    may take, by the upper end of its estimate.
    """

    name: GoalName
    targets: Targets
    rate: float = 0.0
    clients: int = 0
    most_start: float | None = None

    @property
    def demand(self) -> float:
        """Return requests per second, or clients; 0 without a given load."""
        return float(self.clients) or self.rate

    @property
    def counts_replicas(self) -> bool:
        """Return True if the question is which replicas serve the given load."""
        return bool(self.demand) and self.name != "throughput"

    @property
    def has_one_client(self) -> bool:
        """Return True for the lowest latency without a given load: one client has it."""
        return self.name == "latency" and not self.demand

    @property
    def has_targets(self) -> bool:
        """Return True if a latency has a target."""
        return bool(self.targets.given)


@dataclass(frozen=True)
class Served:
    """Performance of a configuration under its load.

    ``ttft``, ``tpot`` and ``e2e`` are seconds that the goal's percentile stays within; ``tokens``
    are output tokens per second of all ``replicas``, ``spare`` those that they make at most within
    the targets. ``balance`` is the objective of the goal "balanced" under full load: it decides
    where two are alike.
    """

    replicas: int
    cards: int
    nodes: int
    ttft: float
    tpot: float
    e2e: float
    tokens: float
    spare: float
    length: int
    balance: float

    @property
    def per_card(self) -> float:
        """Return output tokens per second of one card."""
        return self.tokens / self.cards


def objective(goal: Goal, served: Served) -> float:
    """Return how well a configuration serves the goal; more is better.

    balanced: output tokens per second and card while no user waits (`core.predict.balance`, as for
    the number of cards of ``serve``). throughput: output tokens per second of all cards (with a
    given load: the most that they carry within the targets). latency: 1 / E2E latency. context: the
    maximum of input plus output. cost: with a given load 1 / cards, else output tokens per second
    and card.
    """
    if goal.name == "throughput":
        return served.spare
    if goal.name == "latency":
        return 1 / served.e2e
    if goal.name == "context":
        return float(served.length)
    if goal.name == "cost" and goal.demand:
        return 1 / served.cards
    if goal.name == "cost":
        return served.per_card
    return balanced(served.per_card, ttft=served.ttft, tpot=served.tpot)


def second(goal: Goal, served: Served) -> float:
    """Return what decides where the goal is served alike; more is better.

    With a load and targets the least of targets / latencies, so that other requests meet them too.
    """
    if goal.demand and goal.has_targets:
        return 1 / max(1e-9, *goal.targets.shares(served).values())
    return served.balance


def alike(score: float) -> float:
    """Return a score without the digits that a simulation does not know.

    >>> alike(0.24961), alike(131072.0)
    (0.2496, 131100.0)
    """
    return float(f"{score:.4g}")
