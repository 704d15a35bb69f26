"""The engines, for people and for programs."""

from __future__ import annotations

from typing import Any

from gaudi_launch.cli.console import console, emit_json, table
from gaudi_launch.commands.setup.engines.case import EngineListing, EngineState
from gaudi_launch.core.base.messages import catalogue, language, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.releases import PinTrial
from gaudi_launch.core.engines.support import ended


def show(found: EngineListing, as_json: bool, *, complete: bool) -> None:
    """Print the engines, installed ones first; ``complete``: with features."""
    if as_json:
        emit_json(
            {
                "schema": 1,
                "asked": found.python,
                "engines": [_row(state) for state in found.engines],
                "gateway": _gateway(found),
                "facts": [
                    {
                        "engine": version.label,
                        "date": version.date,
                        "ended": ended(version.label),
                        "executed": version.executed,
                    }
                    for version in found.versions
                ],
            }
        )
        return
    out = console()
    installed = [state.name for state in found.engines if state.installed]
    if installed:
        out.print(text("engines.installed", names=text("common.between").join(installed)))
    else:
        out.print(text("engines.none", python=found.python or "PATH"))
    if found.gateway is None:
        out.print(text("engines.no_gateway"))
    else:
        version, path = found.gateway.version(), found.gateway.program()
        out.print(text("engines.gateway", version=version, path=path))
    columns = text("engines.columns").split("|")
    if complete:
        out.print(table("", columns, [_cells(state) for state in found.engines]))
        _show_facts(found.versions)
        return
    out.print(table("", columns[:2], [(state.name, _title(state)) for state in found.engines]))
    out.print(text("engines.more"))


def _show_facts(versions: tuple[Version, ...]) -> None:
    """Print the month of each version's facts, one line per engine."""
    by_engine: dict[str, list[str]] = {}
    executed = {each.engine for each in versions if each.executed}
    for each in versions:
        id = "engines.facts_version"
        if each.file:
            id = "engines.facts_installed"
        if each.engine in executed and not each.executed:
            # no plan is made for it without an installation
            id = "engines.facts_only_read"
        row = text(id, version=each.version, month=each.date[:7], date=each.date)
        by_engine.setdefault(each.engine, []).append(row)
    out = console()
    out.print(text("engines.facts_title"))
    for engine, rows in by_engine.items():
        known = text("common.between").join(rows)
        line = text("common.pair", label=f"  {engine}", value=known)
        end = ended(engine)
        if end is not None:
            line = text("common.clauses").join((line, text("engines.ended", date=end)))
        out.print(line)


def _gateway(found: EngineListing) -> dict[str, str] | None:
    if found.gateway is None:
        return None
    return {"program": str(found.gateway.program()), "version": found.gateway.version()}


def _row(state: EngineState) -> dict[str, Any]:
    return {
        "name": state.name,
        "title": _title(state),
        "installed": state.installed,
        "packages": dict(state.packages),
        "can": list(state.engine.can),
        "lacks": list(state.engine.lacks),
        "needs_cards": state.engine.needs_cards,
        "facts_date": state.facts_date,
        "ended": state.ended,
        "constraints": mapped(_trial, state.constraints),
    }


def _trial(trial: PinTrial) -> dict[str, Any]:
    return {
        "tried": trial.date,
        "python": trial.python,
        "installed": trial.installed,
        "imported": trial.imported,
        "left_out": list(trial.left_out),
    }


def _title(state: EngineState) -> str:
    name = state.name.replace("@", "_").replace(".", "_").replace("-", "_")
    # an engine added by its user has no title
    return catalogue(language()).get(f"engines.title_{name}", state.name)


def _cells(state: EngineState) -> tuple[str, ...]:
    can = text("common.between").join(text(f"engines.can_{word}") for word in state.engine.can)
    return (
        state.name,
        _dated(state),
        state.installed or "-",
        can or "-",
        ", ".join(state.engine.lacks) or "-",
    )


def _dated(state: EngineState) -> str:
    """Return an engine's title with the month of its facts and the date of its end."""
    parts = [_title(state)]
    if state.facts_date:
        parts.append(text("engines.as_of", month=state.facts_date[:7]))
    if state.ended:
        parts.append(text("engines.ended", date=state.ended))
    if state.constraints is not None:
        parts.append(text("engines.pins_tried", date=state.constraints.date))
    return text("common.clauses").join(parts)
