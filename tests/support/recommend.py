"""Cases of a search for tests."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.app.fit import ServedLengths, data_types, engine_for, request_for
from gaudi_launch.capacity.search import Targets
from gaudi_launch.capacity.traffic import Traffic, from_ranges
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.profiles import known_model
from gaudi_launch.recommend.goal import Goal, GoalName
from gaudi_launch.recommend.space import CardPool, SearchCase, SearchedEngine

NO_TARGETS = Targets(None, None)
SMALL = "meta-llama/Llama-3.1-8B-Instruct"


def goal(name: GoalName, **changes: object) -> Goal:
    """Return a goal without targets and load, with these changes."""
    return replace(Goal(name, NO_TARGETS), **changes)  # type: ignore[arg-type]


def short_traffic(seed: int = 0) -> Traffic:
    """Return requests of 100 to 1000 tokens with answers of 20 to 100."""
    return from_ranges((100, 1000), (20, 100), seed)


def search_case(
    name: str = SMALL, *, nodes: int | None = 1, dtype: str = "", **changes: object
) -> SearchCase:
    """Return a search for Gaudi2 servers; ``changes`` are of its request."""
    model = known_model(name, False)
    engine = engine_for("", model, "gaudi2")
    request = replace(request_for(model, ServedLengths()), **changes)  # type: ignore[arg-type]
    searched = SearchedEngine(engine, request, tuple(data_types(model, dtype, engine)))
    pool = CardPool(accelerators()["gaudi2"], 8, nodes)
    return SearchCase(model, pool, (searched,), short_traffic(), (1000, 100))
