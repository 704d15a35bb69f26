"""Changes of the power limits of cards, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gaudi_launch.cli.console import emit_json
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.doctor.power_limit import CapChange, CapOutcome


def show_commands(changes: Sequence[CapChange], as_json: bool) -> None:
    """Print the hl-smi commands of the changes."""
    lines = [" ".join(["hl-smi", *change.arguments]) for change in changes]
    if as_json:
        emit_json({"schema": 1, "commands": lines})
    else:
        print("\n".join(lines))


def show_outcomes(outcomes: Sequence[CapOutcome], as_json: bool) -> None:
    """Print the result of each change."""
    if as_json:
        return emit_json({"schema": 1, "cards": [_outcome_json(each) for each in outcomes]})
    if not outcomes:
        print(text("power.nothing_to_undo"))
    for each in outcomes:
        change = each.change
        id = f"power.cap_{each.status}"
        print(
            text(
                id, bus=change.bus, before=change.before_w, after=change.after_w, reason=each.reason
            )
        )


def _outcome_json(outcome: CapOutcome) -> dict[str, Any]:
    return {
        "module": outcome.change.module,
        "bus": outcome.change.bus,
        "status": outcome.status,
        "before_w": outcome.change.before_w,
        "requested_w": outcome.change.after_w,
        "now_w": outcome.now_w,
        "reason": outcome.reason,
    }
