"""Cases of a search for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from gaudi_launch.commands.inspect.fit import ServedLengths, engine_for, request_for
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.launch.forecast_case import data_types
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.load import Load, from_ranges
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend.analytic import Group
from gaudi_launch.extensions.recommend.goal import Goal, GoalName
from gaudi_launch.extensions.recommend.space import Candidate, CardPool, SearchCase, SearchedEngine
from gaudi_launch.extensions.recommend.trial import Planner, Trial

NO_TARGETS = Targets(None, None)
SMALL = "meta-llama/Llama-3.1-8B-Instruct"


def goal(name: GoalName, **changes: object) -> Goal:
    """Return a goal without targets and load, with these changes."""
    return replace(Goal(name, NO_TARGETS), **changes)  # type: ignore[arg-type]


# requests of 100 to 1000 tokens with answers of 20 to 100
SHORT = from_ranges((100, 1000), (20, 100))


def search_case(
    name: str = SMALL, *, nodes: int | None = 1, dtype: str = "", **changes: object
) -> SearchCase:
    """Return a search for Gaudi2 servers; ``changes`` are of its request."""
    model = known_model(name, False)
    engine = engine_for("", model, "gaudi2")
    request = replace(request_for(model, ServedLengths()), **changes)  # type: ignore[arg-type]
    searched = SearchedEngine(engine, request, tuple(data_types(model, dtype, engine)))
    pool = CardPool(accelerators()["gaudi2"], 8, nodes)
    return SearchCase(model, pool, (searched,), SHORT, (1000, 100))


def unplanned(case: SearchCase) -> Planner:
    """Return a planner that gives each candidate what its group has, without buckets."""
    plan: Any = SimpleNamespace(buckets=None, estimate=None, skips_warmup=False)

    def planned(candidate: Candidate) -> Trial:
        setup = Group(case, case.engine(candidate.engine), candidate).setup(candidate)
        assert setup is not None, "it fits"
        return Trial(candidate, setup, plan)

    return planned


@dataclass(frozen=True)
class TableEngine:
    """An engine of a search that answers from these fields.

    ``turns``: prefix caching can be turned on and off. ``fp8``: arguments of a KV cache in fp8.
    """

    exact: str = "toy"
    scheduling: str = "v0"
    lacks: tuple[str, ...] = ()
    caches: bool = False
    turns: bool = True
    fp8: tuple[str, ...] = ()
    stages: bool = False
    ended: str | None = None

    @property
    def innermost(self) -> TableEngine:
        return self

    @property
    def identity(self) -> Any:
        return SimpleNamespace(exact=self.exact, label=self.exact.upper())

    def caches_prefixes(self, request: Request, model: Model) -> bool:
        return self.caches

    def prefix_arguments(self, *, on: bool) -> tuple[str, ...] | None:
        if not self.turns:
            return None
        return ("--prefixes", str(on))

    def cache_arguments(self, model: Model) -> tuple[str, ...]:
        return self.fp8

    def runs_stages(self, model: Model) -> bool:
        return self.stages


# two requests of 100 tokens with answers of 10
TWO_REQUESTS = Load(((0.0, 100, 10), (1.0, 100, 10)))


def searched(engine: TableEngine, *dtypes: str, **given: Any) -> SearchedEngine:
    """Return an engine of a search with these options."""
    made: Any = engine
    return SearchedEngine(made, Request("m", **given), dtypes or ("bf16",))


def table_case(
    engine: TableEngine | None = None, *, nodes: int | None = 1, **given: Any
) -> SearchCase:
    """Return a search for servers of eight cards.

    ``given`` are options of its request.
    """
    pool = CardPool(accelerators()["gaudi2"], 8, nodes)
    first = searched(engine or TableEngine(), **given)
    return SearchCase(Model("m", "m"), pool, (first,), TWO_REQUESTS, (100, 10))
