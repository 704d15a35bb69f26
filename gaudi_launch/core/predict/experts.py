"""The experts that a step of a mixture reads, by engine, family and release.

``operator`` is one call of ``torch.ops.hpu.mixture_of_experts`` with all local experts. Its source
is not public: that it reads only the chosen ones is what the published figures fit better (typical
factor 1.36 against 1.46 on owners left out, `scripts/fit_speed.py`).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from gaudi_launch.core.predict import constants
from gaudi_launch.core.predict.step_model import Engine


@dataclass(frozen=True)
class ExpertPath:
    """The experts that an engine's code reads; up to ``tokens`` the chosen ones only."""

    engine: str
    family: str
    since: tuple[int, ...]
    reads: str
    tokens: int
    source: str


@cache
def expert_paths() -> tuple[ExpertPath, ...]:
    """Return the facts of ``profiles/performance/experts.csv``."""
    with (constants.folder() / "experts.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(
            ExpertPath(
                engine=row["engine"],
                family=row["family"],
                since=tuple(int(part) for part in row["since"].split(".") if part),
                reads=row["reads"],
                tokens=int(row["tokens"] or 0),
                source=row["source"],
            )
            for row in csv.DictReader(stream)
        )


def expert_path(model_type: str, engine: Engine, release: tuple[int, ...] | None) -> ExpertPath:
    """Return the path of a family: the narrowest fact that applies.

    ``release`` of SynapseAI; None is the newest.

    >>> [expert_path(*each).reads for each in (
    ...     ("mixtral", "static", (1, 18)), ("mixtral", "v1", None), ("minimax_m3", "v1", None))]
    ['all', 'operator', 'gather']
    """
    found = [
        each
        for each in expert_paths()
        if each.engine == engine
        and model_type.startswith(each.family)
        and (release is None or each.since <= release)
    ]
    return max(found, key=lambda each: (len(each.family), each.since))


def chosen_experts(
    model_type: str, engine: Engine, release: tuple[int, ...] | None = None
) -> tuple[bool, int]:
    """Return `Setup.fused` and `Setup.gather` of a family.

    >>> chosen_experts("minimax_m3", "v1"), chosen_experts("mixtral", "v1")
    ((False, 16), (True, 0))
    """
    path = expert_path(model_type, engine, release)
    return path.reads == "operator", path.tokens
