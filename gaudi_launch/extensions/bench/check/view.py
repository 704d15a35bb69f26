"""The checks of a running server, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, emit_json, say, table
from gaudi_launch.cli.short_page import next_line
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.core.services.endpoint import Target
    from gaudi_launch.extensions.bench.check.quality import Quality, QualityChange
    from gaudi_launch.extensions.bench.check.rows import CheckRow

# troubles of a line
_MOST_SHOWN = 6


def tell(row: CheckRow) -> None:
    """Print each result as it arrives, at a terminal."""
    if sys.stderr.isatty():
        name = text(f"measure.check_name_{row.name}")
        verdict = text(f"measure.check_verdict_{row.verdict}")
        say(text("common.pair", label=name, value=verdict))


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
    if failed:
        end = text("measure.check_bad", count=failed, total=len(rows))
    else:
        end = text("measure.check_good")
    title = text("measure.check_title", label=found.label, url=found.url)
    out.print(text("common.pair", label=title, value=end))
    command = f"gaudi-launch why {found.name}" if failed else f"gaudi-launch chat {found.name}"
    out.print(next_line(command if found.name else f"gaudi-launch chat {found.url}"))
    out.print(table("", columns, lines, right=(2,)))


def show_quality(
    target: Target, found: Quality, change: QualityChange | None, as_json: bool
) -> None:
    """Print how many answers are right and equal, what is wrong, and what changed."""
    compared = None
    if change is not None:
        compared = {**codec.write(change), "worse": change.worse}
    if as_json:
        shares = {"right": found.right, "equal": found.equal, "troubles": found.troubles}
        document = {"schema": 1, "kind": "quality", "url": target.url, **codec.write(found)}
        emit_json({**document, **shares, "compared": compared})
        return
    out = console()
    out.print(text("measure.quality_head", model=found.model, url=target.url))
    total = len(found.answers)
    right = sum(each.right for each in found.answers)
    equal = sum(each.equal for each in found.answers)
    out.print(text("measure.quality_right", right=right, total=total))
    out.print(text("measure.quality_equal", equal=equal, total=total, batch=found.batch))
    out.print(text("measure.quality_repeated", count=found.repeated))
    lengths = ", ".join(str(tokens) for tokens, _ in found.edges) or "-"
    out.print(text("measure.quality_edges", lengths=lengths))
    if found.reference is None:
        out.print(text("measure.quality_no_reference"))
    else:
        values = {name: f"{value:.3g}" for name, value in codec.write(found.reference).items()}
        out.print(text("measure.quality_reference", None, **values))
    if found.troubles:
        shown = "; ".join(found.troubles[:_MOST_SHOWN])
        count = len(found.troubles)
        out.print(text("measure.quality_troubles", count=count, shown=shown), style="bold red")
    else:
        out.print(text("measure.quality_sound"))
    if change is not None:
        _show_change(out, change)


def _show_change(out: Console, change: QualityChange) -> None:
    values = {
        "before": f"{100 * change.before:.0f}",
        "after": f"{100 * change.after:.0f}",
        "lost": ", ".join(change.lost) or "-",
        "gained": ", ".join(change.gained) or "-",
        "other": change.other_text,
        "chance": f"{100 * change.chance:.1f}",
    }
    out.print(text("measure.quality_change", None, **values))
    verdict = text(
        "measure.quality_worse" if change.worse else "measure.quality_same", None, **values
    )
    out.print(verdict, style="bold red" if change.worse else "bold")
