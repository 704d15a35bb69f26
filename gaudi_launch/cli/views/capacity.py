"""The output of ``gaudi-launch capacity``: table and JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gaudi_launch.messages import rendered
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.capacity.cards import CapacityCase, CapacityResult, CardsChoice
    from gaudi_launch.capacity.search import Curve, Fleet

_COLUMNS = ("n", "replicas", "cards", "nodes", "each", "ttft", "tpot", "why")
_SIZES = (1, 10, 100, 1000, 10_000)


def to_json(result: CapacityResult) -> dict[str, Any]:
    """Return the object of --json. Seconds, requests per second, tokens per second."""
    case = result.case
    return {
        "schema": 1,
        "model": case.model.path,
        "accelerator": case.accelerator.id,
        "engine": case.engine.identity.label,
        "dtype": case.dtype,
        "max_model_len": case.limits.max_model_len,
        "max_num_seqs": case.limits.max_num_seqs,
        "rate": case.rate,
        "targets": {
            "ttft": case.targets.ttft,
            "tpot": case.targets.tpot,
            "e2e": case.targets.e2e,
            "percentile": case.targets.percentile,
        },
        "cards_per_node": case.cards_per_node,
        "chosen": mapped(_fleet_json, result.chosen),
        "choices": [_choice_json(choice) for choice in result.choices],
        "concurrency": case.clients or None,
        "carried": [
            {"nodes": nodes, "replicas": replicas, "rate": rate, "output_tokens": tokens}
            for nodes, replicas, rate, tokens in carried(result)
        ],
        "assumptions": [said.to_json() for said in result.assumptions],
    }


_NO_REPLICA = dict.fromkeys(
    ("kv_blocks", "step_time", "padding", "max_num_seqs", "prompts_per_step")
)


def _fleet_json(choice: CardsChoice | None) -> dict[str, Any] | None:
    """Return the fleet of this choice; None where the targets cannot be met."""
    if choice is None or choice.fleet is None:
        return None
    fleet = choice.fleet
    return {
        "cards_per_replica": choice.cards,
        "replicas": fleet.replicas,
        "cards": fleet.cards,
        "nodes": fleet.nodes,
        "rate_per_replica": round(fleet.rate, 6),
        "ttft": round(fleet.ttft, 6),
        "tpot": round(fleet.tpot, 6),
        "e2e": round(fleet.e2e, 6),
        "band": {
            "replicas": _band(choice, lambda one: one.replicas),
            "cards": _band(choice, lambda one: one.cards),
            "nodes": _band(choice, lambda one: one.nodes),
        },
    }


def _band(choice: CardsChoice, count: Callable[[Fleet], int]) -> dict[str, int | None]:
    """Return the expected number with the range of the evidence.

    Return None where the targets cannot be met.
    """
    low, expected, high = (
        mapped(count, fleet) for fleet in (choice.fewest, choice.fleet, choice.most)
    )
    return {"low": low, "expected": expected, "high": high}


def _choice_json(choice: CardsChoice) -> dict[str, Any]:
    return {
        "cards_per_replica": choice.cards,
        "fleet": _fleet_json(choice),
        "why_not": rendered(choice.why_not),
        **_replica_json(choice),
        **_curve_json(choice.curve),
    }


def _replica_json(choice: CardsChoice) -> dict[str, Any]:
    """Return the figures of a planned replica; None for each without one."""
    from gaudi_launch.capacity.replica import Replica

    made = choice.replica
    if not isinstance(made, Replica):
        return _NO_REPLICA
    return {
        "kv_blocks": made.limits.num_blocks,
        "step_time": made.cost.constants(),
        "padding": round(made.padding, 6),
        "max_num_seqs": made.limits.max_num_seqs,
        "prompts_per_step": made.limits.max_num_prefill_seqs,
    }


def _curve_json(curve: Curve | None) -> dict[str, Any]:
    """Return the simulated loads; none where nothing was simulated."""
    if curve is None:
        return {"most": None, "refused": None, "curve": []}
    return {
        "most": round(curve.most, 6),
        "refused": curve.refused,
        "curve": [
            {
                "rate": round(load.rate, 6),
                "share": load.share,
                "ttft": round(load.ttft, 6),
                "tpot": round(load.tpot, 6),
                "e2e": round(load.e2e, 6),
                "output_tokens": round(load.tokens, 3),
                "inside": round(load.inside, 3),
            }
            for load in curve.loads
        ],
    }


def carried(result: CapacityResult) -> list[tuple[int, int, float, float]]:
    """Return the loads that fleets of some sizes carry.

    Each row is (nodes, replicas, requests per second, output tokens per second).
    """
    from gaudi_launch.capacity.search import replicas_on

    choice = result.chosen
    if choice is None or choice.fleet is None or choice.curve is None:
        return []
    last = choice.curve.loads[-1]
    tokens_each = last.tokens / last.rate if last.rate else 0.0
    rows = []
    for nodes in result.case.nodes or _SIZES:
        replicas = replicas_on(nodes, choice.cards, result.case.cards_per_node)
        rate = replicas * _most_rate(choice)
        rows.append((nodes, replicas, round(rate, 3), round(rate * tokens_each, 1)))
    return rows


def _most_rate(choice: CardsChoice) -> float:
    """Return the highest requests per second of one replica within the targets."""
    assert choice.fleet is not None and choice.curve is not None
    if not choice.curve.clients:
        return choice.fleet.rate
    within = [load.rate for load in choice.curve.loads if load.inside <= choice.fleet.rate]
    return max(within, default=choice.curve.loads[0].rate)


def show(result: CapacityResult) -> None:
    """Print the page for people."""
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    out = console()
    case = result.case
    rows = [_row(choice, choice is result.chosen) for choice in result.choices]
    columns = [text(f"capacity.column_{name}") for name in _COLUMNS]
    if case.clients:
        columns[_COLUMNS.index("each")] = text("capacity.column_clients")
    out.print(_heading(case))
    out.print(table("", columns, rows, right=range(7)))
    out.print(_answer(result))
    if result.chosen is not None and result.chosen.fleet is not None:
        _show_carried(result, result.chosen)
    for said in result.assumptions:
        out.print(text("capacity.assumed", what=said.render()))


def _heading(case: CapacityCase) -> str:
    from gaudi_launch.messages import text

    targets = case.targets
    id = "capacity.title_rate"
    if case.clients:
        id = "capacity.title_clients"
    return text(
        id,
        model=case.model.path,
        accelerator=case.accelerator.id,
        dtype=case.dtype,
        demand=_number(case.demand),
        ttft=_target(targets.ttft, 1, "s"),
        tpot=_target(targets.tpot, 1000, "ms"),
        e2e=_target(targets.e2e, 1, "s"),
        percentile=f"{targets.percentile:g}",
    )


def _target(value: float | None, factor: float, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value * factor:g} {unit}"


def _answer(result: CapacityResult) -> str:
    """Return the sentence with the cards of the chosen fleet, or that there is none."""
    from gaudi_launch.messages import text

    chosen = result.chosen
    if chosen is not None and chosen.fleet is not None:
        return _fleet_sentence(chosen, chosen.fleet)
    if any(choice.curve for choice in result.choices):
        return text("capacity.nothing")
    return text("capacity.nothing_fits")


def _fleet_sentence(chosen: CardsChoice, fleet: Fleet) -> str:
    from gaudi_launch.messages import text

    id = "capacity.answer_band"
    if chosen.most is None:
        id = "capacity.answer_open"
    return text(
        id,
        low=(chosen.fewest or fleet).cards,
        high=(chosen.most or fleet).cards,
        cards=fleet.cards,
        nodes=fleet.nodes,
        replicas=fleet.replicas,
        n=chosen.cards,
        batch=_replica_json(chosen)["max_num_seqs"] or 0,
    )


def _show_carried(result: CapacityResult, chosen: CardsChoice) -> None:
    """Print the loads that fleets of some sizes carry."""
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    sizes = [
        (str(n), str(r), _number(rate), _number(tokens)) for n, r, rate, tokens in carried(result)
    ]
    names = [text(f"capacity.column_{name}") for name in ("nodes", "replicas", "rate", "tokens")]
    out = console()
    out.print(text("capacity.carried", n=chosen.cards))
    out.print(table("", names, sizes, right=range(4)))


def _row(choice: CardsChoice, chosen: bool) -> list[str]:

    name = f"{choice.cards}{' *' * chosen}"
    fleet = choice.fleet
    if fleet is None:
        return [name, *["-"] * 6, rendered(choice.why_not) or ""]
    figures = (fleet.replicas, fleet.cards, fleet.nodes)
    return [
        name,
        *map(str, figures),
        _number(fleet.rate),
        f"{_number(fleet.ttft)} s",
        f"{_number(1000 * fleet.tpot)} ms",
        "",
    ]


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"
