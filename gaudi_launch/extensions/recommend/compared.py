"""Parallel sizes that a search compared, and why not others."""

from __future__ import annotations

from dataclasses import dataclass

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.recommend.space import SearchCase, SearchedEngine, layout_name, layouts


@dataclass(frozen=True)
class ComparedSizes:
    """The layouts of a search.

    ``tensor`` and ``stages`` are the sizes in them; ``experts`` are the numbers of cards over which
    the experts of a mixture are divided, with 0 for each expert over all cards; empty without
    experts.
    """

    layouts: tuple[str, ...]
    tensor: tuple[int, ...]
    stages: tuple[int, ...]
    experts: tuple[int, ...]
    notes: tuple[Message, ...]


def compared(case: SearchCase) -> ComparedSizes:
    """Return the parallel sizes of a search, with what is known about their speeds."""
    first = case.engines[0]
    pairs = list(dict.fromkeys(layouts(case, first)))
    return ComparedSizes(
        layouts=tuple(layout_name(*pair) for pair in pairs),
        tensor=tuple(sorted({cards for cards, _ in pairs})),
        stages=tuple(sorted({stages for _, stages in pairs})),
        experts=_experts(case, first),
        notes=(*_stage_notes(case, first), *_expert_notes(case, first)),
    )


def _experts(case: SearchCase, searched: SearchedEngine) -> tuple[int, ...]:
    if not case.model.moe:
        return ()
    sizes = {searched.experts(case.model, cards) for cards, _ in layouts(case, searched)}
    if not searched.decides_experts():
        sizes |= {0, *(cards for cards, _ in layouts(case, searched))}
    return tuple(sorted(sizes))


def _stage_notes(case: SearchCase, searched: SearchedEngine) -> list[Message]:
    label = searched.engine.identity.label
    found: list[Message] = []
    if searched.spreads:
        found.append(message("recommend.spread_assumed"))
    if not searched.engine.runs_stages(case.model):
        found.append(message("recommend.no_stages", engine=label))
    elif not searched.spreads:
        found.append(message("recommend.stages_assumed"))
    return found


def _expert_notes(case: SearchCase, searched: SearchedEngine) -> list[Message]:
    if not case.model.moe:
        return []
    if searched.decides_experts():
        return [message("recommend.experts_given")]
    return [message("recommend.experts_equal")]
