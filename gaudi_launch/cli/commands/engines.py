"""``gaudi-launch engines``: which engines there are, which one is installed, what each serves and cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.planning.engine import Engine

app = CommandApp()


@app.command()
def engines(
    python: str | None = typer.Option(
        None, "--python", help="The interpreter to query (default: python3 on PATH)."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """List the engines: installed ones, features, and unsupported options."""
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.engines.support import ended
    from gaudi_launch.messages import text
    from gaudi_launch.services.containers import image_of

    installed = detect(python)
    rows: list[dict[str, Any]] = []
    for name in registry.ENGINES:
        engine = registry.find(name, installed)
        has = registry.has(installed, name)
        where = image_of(engine) if engine.in_container else registry.interpreter_of(name, installed)
        packages = dict(installed.packages) if has and installed is not None else {}
        rows.append(
            {
                "name": name,
                "title": text(f"engines.title_{name.replace('@', '_').replace('.', '_').replace('-', '_')}"),
                "installed": where,
                "packages": packages,
                "can": list(engine.can),
                "lacks": list(engine.lacks),
                "needs_cards": engine.needs_cards,
                "facts_date": _facts_date(engine),
                "ended": ended(engine.identity.label),
            }
        )
    if as_json:
        asked = installed.python if installed is not None else None
        return emit_json({"schema": 1, "asked": asked, "engines": rows})
    columns = [text(f"engines.column_{name}") for name in ("name", "title", "installed", "can", "lacks")]
    cells = [
        (
            row["name"],
            _title(row),
            row["installed"] or "-",
            ", ".join(text(f"engines.can_{word}") for word in row["can"]) or "-",
            ", ".join(row["lacks"]) or "-",
        )
        for row in rows
    ]
    out = console()
    out.print(table("", columns, cells))
    if not any(row["installed"] for row in rows):
        out.print(text("engines.none", python=installed.python if installed else "PATH"), markup=False)
    return None


def _facts_date(engine: Engine) -> str | None:
    """Return the date of the commit that this version's facts were read from; None without facts."""
    from gaudi_launch.engines.support import version_of

    facts = version_of(engine.identity.name, engine.identity.version)
    return facts.date if facts is not None else None


def _title(row: dict[str, Any]) -> str:
    """Return an engine's title with the month of its facts and the date of its end."""
    from gaudi_launch.messages import text

    parts = [str(row["title"])]
    if row["facts_date"]:
        parts.append(text("engines.as_of", month=str(row["facts_date"])[:7]))
    if row["ended"]:
        parts.append(text("engines.ended", date=row["ended"]))
    return "; ".join(parts)
