"""A running calibration, on stderr, and its result."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.progress import ProgressDisplay, ProgressState
from gaudi_launch.cli.short_page import ShortPage, next_line
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.core.services.process.step import StepProgress
    from gaudi_launch.extensions.fp8.calibration_run import PhaseState
    from gaudi_launch.extensions.fp8.case import CalibrationResult


class CalibrationTerminal(Terminal):
    """A line for each phase, and one with its count every ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._display = ProgressDisplay()

    def phase(self, name: str, state: PhaseState, number: int, count: int) -> None:
        """Show that a phase begins or is skipped."""
        if state == "done":
            return
        what = text(f"calibrate.phase_{name}")
        id = "calibrate.skip" if state == "skip" else "calibrate.begin"
        self._display.say(text(id, number=number, count=count, what=what))
        self._display.postpone()

    def progress(self, progress: StepProgress) -> None:
        """Show the progress of the running phase, at most every ten seconds."""
        self._display.show(ProgressState(f"  {progress.word}: {progress.done}/{progress.total}"))


def to_json(result: CalibrationResult) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "schema": 1,
        "model": result.request.model,
        "quant_config": result.quant.path,
        "cards": result.request.cards,
        "generation": result.request.generation,
        "kv_cache_dtype": result.quant.kv_dtype,
    }


def show(result: CalibrationResult, model: str) -> None:
    """Print where the measurements are and how serve uses them."""
    path, cards = result.quant.path, result.request.cards
    serve = f"gaudi-launch serve {shlex.quote(model)} -n {cards} {result.serve_with}"
    head: list[str | Text] = [text("calibrate.done", path=path), next_line(serve)]
    ShortPage(head, tail=[text("calibrate.then")]).show(complete=True)
