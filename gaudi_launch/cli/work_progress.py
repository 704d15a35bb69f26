"""Progress of a computation: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gaudi_launch.cli.progress import ProgressDisplay, ProgressState
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


def work_columns() -> Sequence[ProgressColumn]:
    """Return the columns of a bar that counts steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


@contextmanager
def work_progress(id: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show how many steps of the work named by ``id`` are done while the block runs."""
    what = text(id)
    display = ProgressDisplay(work_columns, quiet=quiet)
    display.open(what)
    display.postpone()

    def show(done: int, total: int) -> None:
        display.show(
            ProgressState(line=f"{what} {done}/{total}", done=done, total=total, description=what)
        )

    try:
        yield show
    finally:
        display.close()
