"""``gaudi-launch pull``: fetch a model from Hugging Face or ModelScope, whole, verified, resumable."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.models.hub import Progress, Pulled

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

_PLAIN_EVERY_SECONDS = 10.0


@app.command()
def pull(
    repo: str = typer.Argument(..., metavar="OWNER/NAME"),
    source: str = typer.Option(
        "auto", "--from", metavar="hf|modelscope|auto", help="auto: the one that answers faster."
    ),
    to: Path | None = typer.Option(None, "--to", metavar="DIR", help="Where to (default: the XDG data folder)."),
    revision: str = typer.Option("", "--revision", help="Branch, tag or commit."),
    repo_type: str = typer.Option("model", "--repo-type", metavar="model|dataset"),
    everything: bool = typer.Option(False, "--all", help="Every file, not only what serving needs."),
    code: bool = typer.Option(False, "--trust-remote-code", help="Also the model's own Python files."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Fetch a model. Run again after any interruption, it goes on where it stopped."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.models.config import looks_like_hub_id

    if not looks_like_hub_id(repo):
        raise LaunchError("pull.name", ExitCode.USAGE, found=repo)
    if source not in ("hf", "modelscope", "auto"):
        raise LaunchError("pull.source", ExitCode.USAGE, found=source)
    if repo_type not in ("model", "dataset"):
        raise LaunchError("pull.repo_type", ExitCode.USAGE, found=repo_type)
    done = fetch(repo, source, to, revision, repo_type, everything=everything, code=code)
    size = sum(file.size for file in done.files)
    if as_json:
        return emit_json(
            {
                "schema": 1,
                "repo": repo,
                "source": done.listing.source,
                "revision": done.listing.revision,
                "folder": str(done.folder),
                "files": len(done.files),
                "bytes": size,
                "fetched": done.fetched,
            }
        )
    return print(text("pull.done", folder=str(done.folder), count=len(done.files), size=_size(size)))


def fetch(
    repo: str,
    source: str = "auto",
    to: Path | None = None,
    revision: str = "",
    repo_type: str = "model",
    *,
    everything: bool = False,
    code: bool = False,
) -> Pulled:
    """Fetch a model and show how it goes, on stderr."""
    from gaudi_launch.messages import text
    from gaudi_launch.models import hub
    from gaudi_launch.models.local import folder_for

    find = hub.find if source == "auto" else lambda *words: hub.list_files(words[0], source, *words[1:])
    listing = find(repo, revision, repo_type)
    folder = to if to is not None else folder_for(repo, revision, repo_type)
    _say(text("pull.begin", repo=repo, source=listing.source, folder=str(folder)))
    shown = _Shown()
    try:
        done = hub.pull(listing, folder, everything=everything, code=code, repo_type=repo_type, report=shown.report)
    finally:
        shown.close()
    if done.cleared:
        _say(text("pull.cleared", count=len(done.cleared)))
    return done


class _Shown:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        from gaudi_launch.cli.output import console

        self._console = console(stderr=True)
        self._bar: Any = None
        self._task: Any = None
        self._next = 0.0
        self._begin: tuple[float, int] | None = None

    def report(self, progress: Progress) -> None:
        files = f"{progress.done_files}/{progress.total_files}"
        if self._console.is_terminal:
            if self._bar is None:
                self._open()
            self._bar.update(
                self._task,
                completed=progress.done_bytes,
                total=progress.total_bytes,
                description=f"{files} {_current(progress)}",
            )
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_EVERY_SECONDS
            _say(f"{files}  {self._line(progress, time.monotonic())}  {_current(progress)}".rstrip())

    def _line(self, progress: Progress, now: float) -> str:
        """Bytes, share, and from the second line on the speed since the first one and the time that is left."""
        done, total = progress.done_bytes, progress.total_bytes
        words = f"{_size(done)} / {_size(total)}  {100 * done / max(total, 1):.0f}%"
        if self._begin is None:
            self._begin = (now, done)
            return words
        begin, before = self._begin
        speed = (done - before) / max(now - begin, 0.001)
        if speed <= 0:
            return words
        left = round((total - done) / speed)
        return f"{words}  {_size(int(speed))}/s  {left // 3600}:{left // 60 % 60:02}:{left % 60:02}"

    def _open(self) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
        more = (TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, *more, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _current(progress: Progress) -> str:
    """The file under way and how much of it is there."""
    if not progress.current:
        return ""
    return f"{progress.current[-40:]} {100 * progress.current_bytes // max(progress.current_total, 1)}%"


def _say(line: str) -> None:
    import sys

    print(line, file=sys.stderr, flush=True)


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
