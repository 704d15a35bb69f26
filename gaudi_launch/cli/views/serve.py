"""The output of serve: the engine's lines, with a bar below on a terminal.

All on stderr, but for the lines that a user needs next.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import give_up_broken
from gaudi_launch.cli.progress import LaunchBar
from gaudi_launch.core.base.durations import span
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.server_answers import POOLED, pooled_question

if TYPE_CHECKING:
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.predict.simulate import Outcome
    from gaudi_launch.core.services.log.follow import Facts, LaunchProgress
    from gaudi_launch.core.services.probe import Readiness


class Screen:
    """A supervise.Watcher for people; ``quiet``: without the engine's lines.

    ``speed`` is the prediction that ``plan`` prints.
    """

    def __init__(self, plan: Plan, speed: Outcome | None, log: str, quiet: bool) -> None:
        self._plan = plan
        self._speed = speed
        self._log = log
        self._quiet = quiet
        self._bar = LaunchBar(_expected(plan))
        self._began = time.monotonic()
        self._partial = ""
        self._facts: Facts = {}

    def begin(self) -> None:
        """Print what is about to start."""
        plan = self._plan
        cards = ",".join(str(module) for module in plan.placement.modules)
        id = "serve.starting" if cards else "screen.starting_cpu"
        self._bar.note(text(id, model=plan.model["name"], engine=plan.engine.exact, cards=cards))
        choice = plan.placement.choice
        if choice is not None:
            self._bar.note(f"  {choice.render()}")
        expected = _expected(plan)
        if expected:
            self._bar.note(f"  {expected}")
        if self._speed is not None:
            from gaudi_launch.cli.views.speed import summary

            speed = text("estimate.predicted", what=summary(self._speed))
            self._bar.note(f"  {speed}")
        for warning in plan.warnings:
            self._bar.note(f"  {text('plan.warning', what=warning.render())}")

    def started(self, pid: int) -> None:
        """Print the engine's process and log, and show the panel."""
        self._bar.say(text("serve.started", pid=pid, log=self._log))
        self._bar.open()

    def output(self, chunk: str) -> None:
        """Pass the engine's lines on, complete lines only."""
        if self._quiet:
            return
        lines = (self._partial + chunk).replace("\r", "\n").split("\n")
        self._partial = lines.pop()[-10_000:]
        for line in lines:
            if line.strip():
                self._bar.say(line)

    def progress(self, progress: LaunchProgress) -> None:
        self._facts = progress.facts
        self._bar.progress(progress)

    def ready(self, readiness: Readiness) -> None:
        """Print that it answers, and what to do next, on stdout."""
        self._bar.close()
        try:
            self._say_ready(readiness)
        except BrokenPipeError:
            # the reader went away: the engine does not end for that
            give_up_broken()

    def _say_ready(self, readiness: Readiness) -> None:
        seconds = round(time.monotonic() - self._began)
        model = readiness.model or str(self._plan.model["name"])
        say_ready(model, self._plan.url, seconds, self._log, readiness.path, readiness.no_chat)
        print(text("serve.stop_hint"), flush=True)
        if "ray_dashboard" in self._facts:
            print(text("ray.dashboard", url=self._facts["ray_dashboard"]), flush=True)

    def ending(self, signal_number: int | None) -> None:
        self._bar.close()
        self._bar.say(text("serve.ending"))

    def close(self) -> None:
        self._bar.close()


def _expected(plan: Plan) -> str:
    """Return how long the warm-up is expected to take; "" where it is not known."""
    if plan.buckets is None:
        return ""
    if plan.estimate is None:
        return text("serve.graphs", graphs=plan.buckets.graphs)
    time = span(plan.estimate.low_seconds, plan.estimate.high_seconds)
    return text("screen.panel_expected", graphs=plan.buckets.graphs, time=time)


def say_ready(model: str, url: str, seconds: int, log: str, path: str, no_chat: str = "") -> None:
    """Print that it answers, a first request, and the path of its log.

    ``path`` is the path that answered, ``no_chat`` the refusal of a chat.
    """
    print(text("serve.ready", model=model, url=url, seconds=seconds))
    if path not in POOLED.values():
        print(text("serve.chat_hint", name=PurePath(log).parent.name))
    print(f"  {first_request(model, url, path, no_chat)}")
    if no_chat:
        print(text("serve.no_chat", why=no_chat))
    print(text("serve.log", log=log), flush=True)


def first_request(model: str, url: str, path: str, no_chat: str = "", *headers: str) -> str:
    """Return a command line that sends a first request; ``headers`` are more of them."""
    there, question = _question(path, model, chats=not no_chat)
    words = ["curl", "--noproxy", "*", f"{url}{there}"]
    for header in ("Content-Type: application/json", *headers):
        words += ["-H", header]
    return shlex.join([*words, "-d", json.dumps(question)])


def _question(path: str, model: str, *, chats: bool) -> tuple[str, dict[str, Any]]:
    """Return a first request in the server's API: path and content."""
    asked = "What is the capital of France?"
    if path == "/generate":
        # TGI's chat would read the model's name as that of an adapter (router/src/lib.rs)
        return path, {"inputs": asked, "parameters": {"max_new_tokens": 32}}
    for task, place in POOLED.items():
        if path == place:
            return path, pooled_question(task, model, (asked, "Paris is the capital of France."))
    if not chats:
        return path, {"model": model, "prompt": asked, "max_tokens": 32}
    return "/v1/chat/completions", {
        "model": model,
        "messages": [{"role": "user", "content": asked}],
    }
