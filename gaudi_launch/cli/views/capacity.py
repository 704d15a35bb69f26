"""The output of ``gaudi-launch capacity``: table, chart, JSON, picture.

The chart is for the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import rendered
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.capacity.cards import CapacityCase, CapacityResult, CardsChoice
    from gaudi_launch.capacity.latency_chart import Panel
    from gaudi_launch.capacity.search import Curve, Fleet

_COLUMNS = ("n", "replicas", "cards", "nodes", "each", "ttft", "tpot", "why")
_SIZES = (1, 10, 100, 1000, 10_000)
_ROWS, _WIDTH = 8, 60


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
        "assumptions": [{"id": said.id, "message": said.render()} for said in result.assumptions],
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


def show(result: CapacityResult, plot: Path | None) -> None:
    """Print the page for people."""
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    out = console()
    case = result.case
    rows = [_row(choice, choice is result.chosen) for choice in result.choices]
    columns = [text(f"capacity.column_{name}") for name in _COLUMNS]
    if case.clients:
        columns[_COLUMNS.index("each")] = text("capacity.column_clients")
    out.print(_heading(case), markup=False, soft_wrap=True)
    out.print(table("", columns, rows, right=range(7)))
    out.print(_answer(result), markup=False, soft_wrap=True)
    if result.chosen is not None and result.chosen.fleet is not None:
        _show_carried(result, result.chosen)
    drawn = _drawn(result)
    if drawn is not None and drawn.curve is not None:
        rate = _marked(result, drawn)
        curve = replace(drawn.curve, clients=False)
        out.print(_chart(curve, case.targets.ttft, case.targets.tpot, rate, drawn.cards))
    lines = [text("capacity.assumed", what=said.render()) for said in result.assumptions]
    if plot is not None:
        lines.append(text("capacity.drawn", path=str(plot)))
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _heading(case: CapacityCase) -> str:
    from gaudi_launch.capacity.latency_chart import number
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
        demand=number(case.demand),
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
    from gaudi_launch.capacity.latency_chart import number
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    sizes = [
        (str(n), str(r), number(rate), number(tokens)) for n, r, rate, tokens in carried(result)
    ]
    names = [text(f"capacity.column_{name}") for name in ("nodes", "replicas", "rate", "tokens")]
    out = console()
    out.print(text("capacity.carried", n=chosen.cards), markup=False, soft_wrap=True)
    out.print(table("", names, sizes, right=range(4)))


def _drawn(result: CapacityResult) -> CardsChoice | None:
    """Return the choice to draw: the chosen one, else the largest that was simulated."""
    if result.chosen is not None:
        return result.chosen
    return next((choice for choice in reversed(result.choices) if choice.curve), None)


def _marked(result: CapacityResult, choice: CardsChoice) -> float | None:
    """Return the requests per second of one replica of the fleet, for the chart."""
    if choice.fleet is None or choice.curve is None:
        return None
    amount = result.case.demand / choice.fleet.replicas
    if not choice.curve.clients:
        return amount
    return next(
        (load.rate for load in choice.curve.loads if load.inside >= amount),
        choice.curve.loads[-1].rate,
    )


def _row(choice: CardsChoice, chosen: bool) -> list[str]:
    from gaudi_launch.capacity.latency_chart import number

    name = f"{choice.cards}{' *' * chosen}"
    fleet = choice.fleet
    if fleet is None:
        return [name, *["-"] * 6, rendered(choice.why_not) or ""]
    figures = (fleet.replicas, fleet.cards, fleet.nodes)
    return [
        name,
        *map(str, figures),
        number(fleet.rate),
        f"{number(fleet.ttft)} s",
        f"{number(1000 * fleet.tpot)} ms",
        "",
    ]


def _chart(
    curve: Curve, ttft: float | None, tpot: float | None, chosen: float | None, cards: int
) -> Text:
    """Return both latencies against the load of one replica, as text."""
    from rich.text import Text

    from gaudi_launch.capacity.latency_chart import column_of, number, panels
    from gaudi_launch.messages import text

    drawn = Text(text("capacity.chart", n=cards) + "\n", no_wrap=True)
    mark = mapped(lambda rate: column_of(curve, rate, _WIDTH), chosen)
    for panel in panels(curve, ttft, tpot, _WIDTH):
        drawn.append(f"{panel.name} ({panel.unit.lower()})\n")
        _draw_panel(drawn, panel, mark)
    left, right = number(curve.loads[0].rate), number(curve.loads[-1].rate)
    drawn.append(" " * 10 + left + " " * max(1, _WIDTH - len(left) - len(right)) + right + "\n")
    return drawn


def _draw_panel(drawn: Text, panel: Panel, mark: int | None) -> None:
    """Append one latency: its values, its target and the column of the chosen load."""
    from gaudi_launch.capacity.latency_chart import number

    lines = [_line(panel, value) for value in panel.values]
    goal = mapped(lambda target: _line(panel, target), panel.target)
    labels = {_ROWS - 1: number(panel.high * panel.factor), 0: number(panel.low * panel.factor)}
    for row in range(_ROWS - 1, -1, -1):
        drawn.append(f"{labels.get(row, ''):>8} |")
        for column, line in enumerate(lines):
            if line == row:
                drawn.append("*", style="blue")
            elif row == goal:
                drawn.append("-", style="red")
            elif column == mark:
                drawn.append(":", style="green")
            else:
                drawn.append(" ", style="green")
        drawn.append("\n")


def _line(panel: Panel, value: float) -> int:
    return min(_ROWS - 1, max(0, round(panel.height(value) * (_ROWS - 1))))


def draw(path: Path, result: CapacityResult) -> None:
    """Write the picture of the chosen replica, else of the first that was simulated.

    Raises LaunchError (USAGE).
    """
    from gaudi_launch.capacity import latency_chart
    from gaudi_launch.plotting import label

    choice = _drawn(result)
    if choice is None or choice.curve is None:
        raise LaunchError("capacity.nothing_to_draw", ExitCode.USAGE)
    targets = result.case.targets
    rate = _marked(result, choice)
    curve = replace(choice.curve, clients=False)
    title = label("plot.replica_title", model=result.case.model.name, cards=choice.cards)
    drawn = latency_chart.picture(curve, targets, rate, title, path.suffix.lower())
    try:
        path.write_bytes(drawn)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("warmup.not_written", ExitCode.USAGE, path=str(path), error=why) from None
