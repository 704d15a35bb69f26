"""Serve a model to an answer; compare what was measured with the plan.

The program serves, measures and reports with its own commands, each a process that ends with this
one: nothing is measured here in another way than users measure it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.engines.entries import ENGINES, installation
from gaudi_launch.core.engines.install.contract import Installation
from gaudi_launch.core.services.diagnosis.failure import read_log
from gaudi_launch.core.services.state import chosen, registry
from gaudi_launch.core.services.stop import stop
from gaudi_launch.extensions.acceptance.records import NoFigure, Step, StepMeasurement
from gaudi_launch.extensions.acceptance.tools import TestBed, failed, late, together

_log = logging.getLogger(__name__)

_SMALL = "demo"
# without cards: the times of the simulated cards are divided by it
_TIME_SCALE = "20"
_LOAD = {"-i": 128, "-o": 32, "--requests": 16, "--concurrency": 4}
_END_SECONDS = 60.0
# what an engine logs about memory, buckets and warm-up; of a log, the first lines of each run
_ABOUT_PLAN = re.compile(r"KV cache|bucket|memory|GiB|warm-?up|graph", re.IGNORECASE)
_MOST_LINES, _MOST_LETTERS = 200, 20_000


# the engine whose cards are simulated, for a server in the place of one with cards
_STAND_IN = next(name for name, each in ENGINES.items() if each.machine)


def stand_in_installation() -> Installation:
    """Return the environment that runs without cards, with torch for the CPU."""
    return installation(ENGINES[_STAND_IN].installation)


def _how(bed: TestBed, model: str) -> list[str]:
    """Return the options of serve; without real cards, of the simulated engine."""
    if bed.cards and str(bed.root) == "/":
        modules = [str(card.module) for card in bed.cards]
        one = ["-m", modules[0]] if model == _SMALL else []
        return ["--engine", bed.engine, "--python", str(bed.python), *one]
    if not stand_in_installation().is_ready():
        raise NoFigure("skipped", message("accept.no_cpu_engine"))
    return ["--engine", _STAND_IN, "--time-scale", _TIME_SCALE]


def _ours(*words: str) -> list[str]:
    return [sys.executable, "-m", "gaudi_launch", *words]


def _document(*words: str, seconds: float) -> Mapping[str, Any]:
    """Return the JSON of one of our commands. Raises NoFigure."""
    try:
        done = interrupt.run(_ours(*words, "--json"), seconds=seconds)
        found: Mapping[str, Any] = parse_json(done.stdout)
        # status has the key for the service's own error, a text or null
        why = str(mapping(found.get("error")).get("message", ""))
    except (OSError, ValueError, TimeoutExpired) as error:
        why = str(error) or type(error).__name__
    if why:
        command = " ".join(words[:2])
        raise NoFigure("broken", message("accept.no_document", command=command, why=why))
    return found


def served(bed: TestBed, step: Step) -> StepMeasurement:
    """Serve and measure the demo model or the chosen one. Raises NoFigure."""
    model = (bed.model or _SMALL) if step.name == "served_model" else _SMALL
    name = f"acceptance-{os.getpid()}"
    argv = _ours("serve", model, "--name", name, "--no-doctor", "--quiet", *_how(bed, model))
    end = time.monotonic() + bed.timeout(step)
    ends: list[CompletedProcess[str]] = []
    server = in_background(lambda: ends.extend(together(argv, [None])))
    try:
        with interrupt.deferred():
            while (found := registry.read(name)) is None or found.phase != "ready":
                interrupt.pause()
                if not server.is_alive():
                    raise failed(model, ends[0])
                if time.monotonic() > end:
                    raise late("serve", bed.timeout(step))
        return _figures(name, end - time.monotonic())
    finally:
        _end(name, server)


def _end(name: str, server: Any) -> None:
    """Stop the service; its process ends with its engine."""
    deadline = time.monotonic() + _END_SECONDS
    while server.is_alive() and time.monotonic() < deadline:
        try:
            found = registry.read(name)
            if found is not None and found.alive:
                stop(found, 0.0, lambda what, value: None)
        except LaunchError as error:
            _log.debug("the service is not stopped yet: %s", error)
        server.join(1.0)


def _figures(name: str, seconds: float) -> StepMeasurement:
    load = [str(word) for pair in _LOAD.items() for word in pair]
    run = _document("bench", name, *load, "--tool", "builtin", seconds=max(30.0, seconds))
    status = _document("status", name, seconds=30.0)
    summary = mapping(run["summary"])
    if not summary.get("completed") or summary.get("failed"):
        count = summary.get("failed", 0)
        raise NoFigure("broken", message("accept.requests_failed", count=count), summary)
    facts, warmup = mapping(status["facts"]), mapping(status["warmup"])
    figures: dict[str, Any] = {
        "output_tokens_per_second": summary["output_rate"],
        "kv_tokens": facts.get("kv_tokens"),
        "warmup_seconds": warmup.get("seconds"),
        "graphs": warmup.get("graphs"),
    }
    for each in ("ttft", "tpot"):
        mean = mapping(summary.get(each)).get("mean")
        figures[f"{each}_ms"] = None if mean is None else 1000 * mean
    values = {who: float(value) for who, value in figures.items() if value is not None}
    planned = {"memory_gib": mapping(status["plan"])["memory"], "warmup": warmup.get("estimated")}
    details = {
        **{key: status[key] for key in ("engine", "model", "simulated", "facts")},
        "dtype": status["plan"]["dtype"],
        "modules": [card["module"] for card in status["cards"]],
        "load": _LOAD,
        "planned": planned,
        "phases": {
            phase["name"]: round(phase["end"] - phase["begin"], 1)
            for phase in status["phases"]
            if phase["end"] is not None
        },
        "summary": summary,
        "log": _log_lines(chosen.find(name).folder / "engine.log"),
    }
    return StepMeasurement(values, details=details)


def _log_lines(log: Path) -> list[str]:
    """Return the engine's own lines about memory, buckets and warm-up."""
    lines = read_log(log).splitlines()
    # not each state of a progress bar; a list of buckets is long
    kept = [line for line in lines if _ABOUT_PLAN.search(line) and "%|" not in line]
    return [line[:_MOST_LETTERS] for line in kept][:_MOST_LINES]
