"""The checks of a running server, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, emit_json, table
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from gaudi_launch.core.services.endpoint import Target
    from gaudi_launch.extensions.bench.check.rows import CheckRow


def tell(row: CheckRow) -> None:
    """Print each result as it arrives, at a terminal."""
    if sys.stderr.isatty():
        name = text(f"measure.check_name_{row.name}")
        verdict = text(f"measure.check_verdict_{row.verdict}")
        print(text("common.pair", label=name, value=verdict), file=sys.stderr, flush=True)


def show(found: Target, rows: Sequence[CheckRow], as_json: bool) -> None:
    """Print all results of a server."""
    failed = sum(row.verdict == "fail" for row in rows)
    if as_json:
        checks = [row.to_json() for row in rows]
        document = {
            "schema": 1,
            "url": found.url,
            "service": found.name,
            "ok": not failed,
            "checks": checks,
        }
        emit_json(document)
        return
    out = console()
    columns = [
        text(f"measure.check_column_{name}") for name in ("question", "result", "seconds", "words")
    ]
    lines = [
        (
            text(f"measure.check_name_{row.name}"),
            text(f"measure.check_verdict_{row.verdict}"),
            f"{row.seconds:.2f}" if row.verdict != "skip" else "-",
            row.sentence.render(),
        )
        for row in rows
    ]
    title = text("measure.check_title", label=found.label, url=found.url)
    out.print(table(title, columns, lines, right=(2,)))
    if failed:
        end = text("measure.check_bad", count=failed, total=len(rows))
    else:
        end = text("measure.check_good")
    out.print(end)
