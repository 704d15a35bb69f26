"""The output of ``gaudi-launch learn``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gaudi_launch.messages import rendered

if TYPE_CHECKING:
    from gaudi_launch.app.learn import LearnOutcome
    from gaudi_launch.performance.learned import LearnedConstants


def show_outcome(outcome: LearnOutcome, as_json: bool) -> None:
    """Print what was learned from each file."""
    from gaudi_launch.app.learn import to_json
    from gaudi_launch.cli.console import emit_json

    if as_json:
        files = [
            {
                "path": result.path,
                "kind": result.kind,
                "measurements": len(result.measurements),
                "why_not": rendered(result.why_not),
            }
            for result in outcome.results
        ]
        emit_json({**to_json(outcome.learned), "files": files})
        return
    for result in outcome.results:
        if result.why_not is not None:
            _say("learn.file_without", path=result.path, why=result.why_not.render())
        else:
            _say("learn.file", path=result.path, count=len(result.measurements))
    show(outcome.learned, False)


def show(learned: LearnedConstants | None, as_json: bool) -> None:
    """Print the learned constants next to the shipped ones."""
    from gaudi_launch.app.learn import to_json
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.messages import text

    document = to_json(learned)
    if as_json:
        emit_json(document)
        return
    if learned is None:
        _say("learn.none")
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(learned.learned_at))
    _say("learn.version", version=learned.version, when=when, count=len(learned.measurements))
    _say(
        "learn.typical",
        before=f"{learned.before:.2f}",
        after=f"{learned.typical:.2f}",
        left=learned.left_out,
    )
    columns = [text(f"learn.column_{name}") for name in ("name", "shipped", "learned", "unit")]
    rows = [
        [row["name"], f"{row['shipped']:.4g}", f"{row['learned']:.4g}", row["unit"]]
        for row in document["constants"]
    ]
    console().print(table("", columns, rows, right=(1, 2)))


def show_reset(removed: bool, as_json: bool) -> None:
    """Print that the shipped constants count again."""
    from gaudi_launch.cli.console import emit_json

    if as_json:
        emit_json({"schema": 1, "removed": removed})
        return
    _say("learn.reset" if removed else "learn.none")


def _say(id: str, **values: Any) -> None:
    from gaudi_launch.cli.console import console
    from gaudi_launch.messages import text

    console().print(text(id, **values))
