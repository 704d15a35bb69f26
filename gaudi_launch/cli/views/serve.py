"""What serve shows: the engine's lines with a bar below on a terminal, plain lines otherwise. All on stderr, but
for the lines that a user needs next."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.bar import Bar
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.services.follow import Facts, Progress
    from gaudi_launch.services.ready import Readiness


class Screen:
    """A supervise.Watcher for people."""

    def __init__(self, plan: Plan, log: str, quiet: bool) -> None:
        self._plan = plan
        self._log = log
        self._quiet = quiet
        self._bar = Bar()
        self._began = time.monotonic()
        self._partial = ""
        self._facts: Facts = {}

    def begin(self) -> None:
        """Say what is about to start."""
        plan = self._plan
        cards = ",".join(str(module) for module in plan.placement.modules) or "-"
        engine = plan.engine.exact
        self._bar.say(text("serve.starting", model=plan.model["name"], engine=engine, cards=cards))
        for reason in plan.placement.reasons:
            self._bar.say(f"  {reason.render()}")
        if plan.buckets is not None:
            self._bar.say(f"  {text('serve.graphs', graphs=plan.buckets.graphs)}")
        for warning in plan.warnings:
            self._bar.say(f"  {text('plan.word_warning')}: {warning.render()}")

    def started(self, pid: int) -> None:
        self._bar.say(text("serve.started", pid=pid, log=self._log))
        self._bar.open()

    def output(self, chunk: str) -> None:
        """Pass the engine's lines on, whole lines only."""
        if self._quiet:
            return
        lines = (self._partial + chunk).replace("\r", "\n").split("\n")
        self._partial = lines.pop()[-10_000:]
        for line in lines:
            if line.strip():
                self._bar.say(line)

    def progress(self, progress: Progress) -> None:
        self._facts = progress.facts
        self._bar.progress(progress)

    def ready(self, readiness: Readiness) -> None:
        """Say that it answers, and what to do next, on stdout."""
        self._bar.close()
        seconds = round(time.monotonic() - self._began)
        model = readiness.model or str(self._plan.model["name"])
        say_ready(model, self._plan.url, seconds, self._log, readiness.path)
        print(text("serve.stop_hint"), flush=True)
        if "ray_dashboard" in self._facts:
            print(text("ray.dashboard", url=self._facts["ray_dashboard"]), flush=True)

    def ending(self, signal_number: int | None) -> None:
        self._bar.close()
        self._bar.say(text("serve.ending"))

    def close(self) -> None:
        self._bar.close()


def say_ready(model: str, url: str, seconds: int, log: str, path: str) -> None:
    """That it answers, a first request to copy, and where its log is. ``path`` is where it answered before."""
    there, question = _question(path, model)
    words = [
        "curl",
        "--noproxy",
        "*",
        f"{url}{there}",
        "-H",
        "Content-Type: application/json",
        "-d",
        json.dumps(question),
    ]
    print(text("serve.ready", model=model, url=url, seconds=seconds))
    print(f"  {shlex.join(words)}")
    print(text("serve.log", log=log), flush=True)


def _question(path: str, model: str) -> tuple[str, dict[str, Any]]:
    """A first request in the server's own language: where to, and what."""
    from gaudi_launch.services.ready import POOLED, pooled_question

    asked = "What is the capital of France?"
    if path == "/generate":
        # TGI's chat would take the model's name for that of an adapter (router/src/lib.rs)
        return path, {"inputs": asked, "parameters": {"max_new_tokens": 32}}
    for task, place in POOLED.items():
        if path == place:
            return path, pooled_question(task, model, (asked, "Paris is the capital of France."))
    return "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": asked}]}
