"""The output of ``gaudi-launch tune``: each launch, the best plan and its proof."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.short_page import NotedRow, ShortPage, command_line, next_line
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.extensions.bench.tune.case import TuneOutcome
    from gaudi_launch.extensions.bench.tune.state import TuneStart


def to_json(outcome: TuneOutcome) -> dict[str, Any]:
    """Return the object of --json: seconds, output tokens per second."""
    state = outcome.state
    return {
        "schema": 1,
        "goal": state.goal,
        "traffic": state.traffic.to_json(),
        "candidates": [
            {"name": one.name, "cards": one.cards, "hash": one.hash} for one in state.candidates
        ],
        "starts": [_start_json(outcome, start) for start in state.starts],
        "best": {
            "candidate": outcome.winner.name,
            "is_given": outcome.is_given,
            "gain": round(outcome.gain, 4) if outcome.gain is not None else None,
            "noise": round(outcome.noise, 4),
            "plan": str(outcome.file),
        },
        "complete": outcome.in_time,
        "simulated": outcome.simulated,
        "compare": _compared(outcome),
        "folder": str(state.folder),
    }


def _start_json(outcome: TuneOutcome, start: TuneStart) -> dict[str, Any]:
    figures = [
        {
            "file": str(outcome.state.folder / figure.file),
            "output_tokens_per_second": round(figure.tokens, 3),
            "ttft_seconds": round(figure.ttft, 6),
            "tpot_seconds": round(figure.tpot, 6),
        }
        for figure in start.figures
    ]
    return {
        "candidate": outcome.state.candidates[start.candidate].name,
        "round": start.round + 1,
        "last": start.last,
        "start_seconds": round(start.start_seconds, 2),
        "seconds": round(start.seconds, 2),
        "runs": figures,
        "why": start.why,
    }


def _compared(outcome: TuneOutcome) -> list[str]:
    """Return the files of the given plan and of the best one, for 'bench compare'."""
    if outcome.given is None or outcome.is_given:
        return []
    runs = (outcome.given.middle, outcome.best.middle)
    return [str(outcome.state.folder / run.file) for run in runs if run is not None]


def show(outcome: TuneOutcome, as_json: bool, *, complete: bool = False) -> None:
    """Print the best plan, the commands that use and prove it, and each launch."""
    if as_json:
        emit_json(to_json(outcome))
        return
    state = outcome.state
    names = [
        text(f"tune.column_{name}") for name in ("round", "plan", "start", "tokens", "ttft", "tpot")
    ]
    values = {"name": outcome.winner.name, "noise": f"{100 * outcome.noise:.0f}"}
    if outcome.is_given:
        answer = text("tune.stays", goal=state.goal, **values)
    elif outcome.gain is None:
        answer = text("tune.best_alone", goal=state.goal, **values)
    else:
        answer = text("tune.best", goal=state.goal, gain=f"{outcome.gain:.2f}", **values)
    head: list[str | Text] = [
        answer,
        next_line(f"gaudi-launch serve --plan {shlex.quote(str(outcome.file))}"),
    ]
    files = _compared(outcome)
    if files:
        head.append(command_line(text("tune.prove", files=shlex.join(files))))
    tail = [text("tune.simulated")] if outcome.simulated else []
    if not outcome.in_time:
        tail.append(text("tune.short"))
    # the last rounds decide
    rows = [NotedRow(tuple(_row(outcome, start))) for start in reversed(state.starts)]
    ShortPage(head, names, rows, right=(2, 3, 4, 5), tail=tail).show(complete=complete)


def _row(outcome: TuneOutcome, start: TuneStart) -> list[str]:
    name = outcome.state.candidates[start.candidate].name
    round = text("tune.last") if start.last else str(start.round + 1)
    middle = start.middle
    if middle is None:
        return [round, name, text("tune.row_failed"), "-", "-", "-"]
    return [
        round,
        name,
        f"{start.start_seconds:.0f} s",
        f"{middle.tokens:,.1f}",
        f"{1000 * middle.ttft:,.0f} ms",
        f"{1000 * middle.tpot:,.1f} ms",
    ]
