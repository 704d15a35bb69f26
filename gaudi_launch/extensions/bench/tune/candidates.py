"""The plans that ``tune`` compares, the given one first."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.launch import route
from gaudi_launch.core.launch.options import LaunchOptions
from gaudi_launch.core.predict.balance import BALANCED

if TYPE_CHECKING:
    from gaudi_launch.core.launch.prepared import Prepared
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.plan import Plan

_log = logging.getLogger(__name__)

GIVEN, DEFAULT = "given", "default"
# the engine's options that tune varies
_SEARCHED = ("--max-num-seqs", "--max-num-batched-tokens")
_TOKEN_STEPS = (2, 4)
_RECOMMENDED = 3


@dataclass(frozen=True)
class TuneCandidate:
    """Options to try. ``cards`` and ``hash`` are of the plan that they had first."""

    name: str
    options: LaunchOptions
    cards: int
    hash: str


def candidates(options: LaunchOptions, *, clients: int, most: int) -> tuple[TuneCandidate, ...]:
    """Return at most ``most`` different plans, the given one first.

    The default and variations of it follow. Options stay as they are given; what is given after
    ``--`` is where the search starts. Raises LaunchError where the given options have no plan.
    """
    found = [_candidate(GIVEN, options, route.plan(options)[0])]
    known = {found[0].hash}
    for name, tried in _variations(options, clients):
        if len(found) == most:
            break
        try:
            made, _ = route.plan(tried)
        except LaunchError as error:
            _log.debug("no candidate %s: %s", name, error)
            continue
        one = _candidate(name, tried, made)
        if one.hash not in known:
            known.add(one.hash)
            found.append(one)
    return tuple(found)


def _candidate(name: str, options: LaunchOptions, plan: Plan) -> TuneCandidate:
    from gaudi_launch.core.launch.saved_plan import hash_of

    return TuneCandidate(name, options, max(1, len(plan.placement.modules)), hash_of(plan))


def _variations(options: LaunchOptions, clients: int) -> Iterator[tuple[str, LaunchOptions]]:
    """Yield names and options, the most promising first."""
    base = without_searched(options)
    yield DEFAULT, base
    prepared = route.prepare(base)
    if prepared.engine.needs_cards:
        yield from _recommended(base, prepared.model, clients)
    for count in _other_counts(prepared):
        yield f"-n {count}", replace(base, cards=str(count))
    limits = prepared.engine.limits(prepared.request, prepared.host, prepared.model)
    if not options.max_num_seqs:
        for batch in _batches(limits.max_num_seqs, clients):
            yield f"-b {batch}", replace(base, max_num_seqs=str(batch))
    if not options.max_num_batched_tokens:
        for step in _TOKEN_STEPS:
            tokens = step * limits.max_num_batched_tokens
            yield f"-t {tokens}", replace(base, max_num_batched_tokens=str(tokens))


def _recommended(
    options: LaunchOptions, model: Model, clients: int
) -> Iterator[tuple[str, LaunchOptions]]:
    """Yield the best configurations of ``recommend`` for these clients."""
    from gaudi_launch.extensions.recommend import case as recommend

    # another type of weights has other answers: only where it is given
    if not (options.dtype or model.quantization):
        options = replace(options, dtype="bf16")
    try:
        given = recommend.RecommendOptions(goal=BALANCED, concurrency=str(clients))
        found = recommend.solve(recommend.read(options, given))
    except LaunchError as error:
        _log.debug("nothing is recommended: %s", error)
        return
    for trial in found.found.trials[:_RECOMMENDED]:
        launch = recommend.launch_options(found.case, trial.candidate)
        yield f"-n {launch.cards or '-m'} -b {launch.max_num_seqs}", launch


def _other_counts(prepared: Prepared) -> list[int]:
    """Return the next best number of cards; none where one is given."""
    from gaudi_launch.core.planning.balanced_cards import speeds_of

    chosen = prepared.request.chosen_cards
    if chosen is None:
        return []
    speeds = speeds_of(prepared.request, prepared.host, prepared.model, prepared.engine)
    ranked = sorted(speeds, key=lambda each: (-each.score, each.cards))
    return [each.cards for each in ranked if each.cards != chosen][:1]


def _batches(default: int, clients: int) -> list[int]:
    """Return other numbers of requests: near the clients, and near the default."""
    enough = 1
    while enough < clients:
        enough *= 2
    wanted = (enough, max(1, enough // 2), 2 * default, max(1, default // 2))
    return [batch for batch in dict.fromkeys(wanted) if batch != default]


def without_searched(options: LaunchOptions) -> LaunchOptions:
    """Return the options without what is searched and given after ``--``.

    >>> without_searched(LaunchOptions(extra=("--max-num-seqs", "1", "--seed", "7"))).extra
    ('--seed', '7')
    """
    from gaudi_launch.core.planning.engine_args import engine_args

    args = engine_args(user=options.extra)
    kept: list[str] = []
    for argument in args.user:
        if argument.shown.replace("_", "-") not in _SEARCHED:
            kept += argument.words
    return replace(options, extra=tuple(kept))
