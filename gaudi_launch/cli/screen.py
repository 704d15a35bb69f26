"""What serve shows: the engine's lines with a bar below on a terminal, plain lines otherwise. All on stderr, but
for the lines that a user needs next."""

from __future__ import annotations

import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.services.follow import Progress
    from gaudi_launch.services.ready import Readiness

_PLAIN_EVERY_SECONDS = 10.0


class Screen:
    """A supervise.Watcher for people."""

    def __init__(self, plan: Plan, log: str, quiet: bool) -> None:
        from gaudi_launch.cli.output import console

        self._plan = plan
        self._log = log
        self._quiet = quiet
        self._console = console(stderr=True)
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._partial = ""
        self._facts: Any = {}
        self._shown: tuple[str, int] = ("", -1)
        self._next_plain = 0.0

    def begin(self, plan: Plan) -> None:
        """Say what is about to start."""
        cards = ",".join(str(module) for module in plan.placement.modules) or "-"
        engine = f"{plan.engine.name}@{plan.engine.version}"
        self._say(text("serve.starting", model=plan.model["name"], engine=engine, cards=cards))
        for reason in plan.placement.reasons:
            self._say(f"  {reason.render()}")
        if plan.buckets is not None:
            self._say(f"  {text('serve.graphs', graphs=plan.buckets.graphs)}")
        for warning in plan.warnings:
            self._say(f"  {text('plan.word_warning')}: {warning.render()}")

    def started(self, pid: int) -> None:
        self._say(text("serve.started", pid=pid, log=self._log))
        if self._console.is_terminal:
            self._open_bar()

    def output(self, chunk: str) -> None:
        """Pass the engine's lines on, whole lines only."""
        if self._quiet:
            return
        lines = (self._partial + chunk).replace("\r", "\n").split("\n")
        self._partial = lines.pop()[-10_000:]
        for line in lines:
            if line.strip():
                self._say(line)

    def progress(self, progress: Progress) -> None:
        self._facts = progress.facts
        if self._bar is not None:
            self._bar.update(
                self._task,
                description=text(f"serve.phase_{progress.phase}"),
                completed=progress.done,
                total=progress.total or None,
                bucket=progress.bucket,
                left=_left(progress),
            )
            return
        now = time.monotonic()
        if progress.phase != self._shown[0] or (progress.done != self._shown[1] and now >= self._next_plain):
            self._shown = (progress.phase, progress.done)
            self._next_plain = now + _PLAIN_EVERY_SECONDS
            self._say(_plain(progress))

    def ready(self, readiness: Readiness) -> None:
        """Say that it answers, and what to do next, on stdout."""
        self._close_bar()
        seconds = round(time.monotonic() - self._began)
        model = readiness.model or str(self._plan.model["name"])
        question = {"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
        words = [
            "curl",
            "--noproxy",
            "*",
            f"{self._plan.url}/v1/chat/completions",
            "-H",
            "Content-Type: application/json",
            "-d",
            json.dumps(question),
        ]
        print(text("serve.ready", model=model, url=self._plan.url, seconds=seconds))
        print(f"  {shlex.join(words)}")
        print(text("serve.log", log=self._log))
        print(text("serve.stop_hint"), flush=True)
        if "ray_dashboard" in self._facts:
            print(text("ray.dashboard", url=self._facts["ray_dashboard"]), flush=True)

    def ending(self, signal_number: int | None) -> None:
        self._close_bar()
        self._say(text("serve.ending"))

    def close(self) -> None:
        self._close_bar()

    def _say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _open_bar(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bucket]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(text("serve.phase_start"), total=None, bucket="", left="")
        self._bar.start()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _left(progress: Progress) -> str:
    seconds = progress.left_seconds
    if seconds is None:
        return ""
    return text("serve.left", time=f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s")


def _plain(progress: Progress) -> str:
    words = [text(f"serve.phase_{progress.phase}")]
    if progress.total:
        words.append(f"{progress.done}/{progress.total}")
    return "  ".join([*words, *(word for word in (progress.bucket, _left(progress)) if word)])
