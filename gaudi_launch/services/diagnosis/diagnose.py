"""Why a start failed: the log against the table of signatures. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from signal import SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM
from typing import Any

from gaudi_launch.messages import Message, message
from gaudi_launch.redact import redact_text
from gaudi_launch.services.diagnosis.exceptions import Exceptions, Line
from gaudi_launch.services.diagnosis.signatures import (
    EXCEPTION,
    KILLED,
    QUIT,
    STUCK,
    TERMINATED,
    Signature,
    signatures,
)
from gaudi_launch.services.log.follow import Follower, bare

_MOST_EVIDENCE = 3
_MOST_LINE = 2000
# a line that only tells what is configured, or a warning that starts survive, is no evidence
_HARMLESS = re.compile(
    # no bucket at all is told as a piece of information, and then fails
    r"^(?:INFO\b(?!.*\bGenerated 0 )|DEBUG\b)|args: Namespace|"
    r"non-default args|UserWarning|FutureWarning|DeprecationWarning"
)


# that a process of it is gone is only warned of, too
# huggingface_hub writes of each try that failed, and goes on with what is there
_WARNING = re.compile(
    r"^(?:WARN(?:ING)?\b(?!.*unexpectedly)|\S{0,100}Warning: )|thrown while requesting (?:HEAD|GET) "
)


@dataclass(frozen=True)
class Cause:
    """One likely cause with its evidence: (line number from 1, text) of the log."""

    id: str
    title: Message
    remedy: Message
    commands: tuple[str, ...]
    evidence: tuple[tuple[int, str], ...]
    permanent: bool
    source: str

    def for_model(self, model: str) -> Cause:
        """With the commands for this model's folder or name."""
        return replace(self, commands=tuple(each.replace("MODEL", shlex.quote(model)) for each in self.commands))

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title.render(),
            "remedy": self.remedy.render(),
            "commands": list(self.commands),
            "evidence": [{"line": number, "text": line} for number, line in self.evidence],
            "permanent": self.permanent,
            "source": self.source,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Causes, the likeliest first. ``phase`` is the one in which it failed, ``failed`` False for a healthy log.

    ``came_up``: it had started before it failed; where it did not fail, causes are what requests failed of.
    ``at`` is how far the phase was, done and total, (0, 0) where that is unknown. ``findings`` are what made
    requests slow; nothing fails of them.
    """

    causes: tuple[Cause, ...]
    phase: str
    failed: bool
    came_up: bool = False
    at: tuple[int, int] = (0, 0)
    findings: tuple[Cause, ...] = ()

    @property
    def permanent(self) -> bool:
        """Would starting again without a change fail again? What failed under load did start."""
        return bool(self.causes) and self.causes[0].permanent and not self.came_up


@cache
def _compiled() -> tuple[tuple[Signature, re.Pattern[str]], ...]:
    known = (*signatures(), KILLED)
    return tuple((signature, re.compile("|".join(signature.patterns))) for signature in known)


def diagnose(text: str, *, exit_status: int | None = None, outcome: str = "", phase: str = "") -> Diagnosis:
    """Judge a log. ``exit_status`` is the engine's (negative: a signal), ``outcome`` what its supervisor says
    (`supervise.Outcome.kind`, "" when there was none), ``phase`` where it was, if known."""
    follower = Follower()
    progress = follower.feed(text + "\n", 0.0)
    bad_end = outcome in ("died", "stuck") or (not outcome and exit_status not in (None, 0))
    # a signal that its own supervisor sent says nothing
    signal = _signal(exit_status) if outcome in ("", "died") else None
    read = _read(text)
    hits, came_up = read.stages, read.came_up
    found = {} if came_up else hits["starting"]
    if came_up and (bad_end or any(id in _DEADLY for id in hits["up"])):
        # an engine survives the failure of one request; one that ended did not
        found = hits["up"]
    if bad_end and not found:
        # what an ordered stop prints is its own noise, unless nothing else explains a bad end
        found = hits["stopping"] or hits["starting"]
    if not bad_end and progress.phase != "failed" and all(map(_warned, found.values())):
        found = {}
    # what is told after the failure, an ordered end, is not where it failed
    where = phase or _last_working(follower, ends=not found or found is hits["stopping"])
    found = _with_end(found, outcome, signal, exit_status)
    ended_itself = outcome != "stopped" and TERMINATED.id not in found
    if ended_itself and (bad_end or progress.phase == "failed"):
        found = _with_exception(found, read)
    if any(_known()[id].rank for id in found):
        # a warning is no cause where anything else is known
        found = {id: lines for id, lines in found.items() if _known()[id].rank}
    failed = bool(found) or bad_end or (progress.phase == "failed" and outcome != "stopped")
    if came_up and not failed and not outcome:
        found = {id: lines for id, lines in hits["up"].items() if not _warned(lines)}
    order = sorted(found, key=lambda id: (_warned(found[id]), -_known()[id].rank, [n for n, _ in found[id]]))
    causes = tuple(_cause(_known()[id], found[id], where) for id in order)
    findings = tuple(_cause(_known()[id], lines, where) for id, lines in read.slow.items())
    return Diagnosis(causes, where, failed, came_up, (progress.done, progress.total), findings)


# what takes the card's memory in a phase decides the remedy
_FILLS = {
    "load": "device_oom_weights",
    "profile": "device_oom_profile",
    "kv_cache": "device_oom_kv",
    **dict.fromkeys(
        ("warmup_prompt", "warmup_decode", "graph_prompt", "graph_decode", "multimodal", "sampler"),
        "device_oom_graphs",
    ),
    "ready": "device_oom_requests",
}

_Hits = dict[str, list[tuple[int, str]]]
_ASKED = (SIGHUP, SIGINT, SIGTERM)
# what a signal alone tells (signal(7)); the kernel sends SIGBUS where a page of shared memory cannot be had
_BY_SIGNAL: dict[int, str] = {
    SIGKILL: KILLED.id,
    SIGBUS: "shared_memory",
    **dict.fromkeys((SIGABRT, SIGFPE, SIGILL, SIGSEGV), "crashed"),
}
# say that the engine is gone, not why: an ordered end prints them, too
_BLUNT = {"core_failed", "process_gone", "startup_probe", "shard_failed"}
# of these no running engine is left
_DEADLY = (*_BLUNT, "crashed", "oom_killer", "device_oom", "bucket_hang", KILLED.id)


@cache
def _known() -> dict[str, Signature]:
    own = (KILLED, TERMINATED, STUCK, QUIT, EXCEPTION)
    return {signature.id: signature for signature in (*signatures(), *own)}


def _with_exception(found: _Hits, read: _Log) -> _Hits:
    """Return the causes with the exception of the log's first traceback, where no error explains more."""
    for id, lines in found.items():
        if lines and not _warned(lines) and _known()[id].rank > EXCEPTION.rank:
            return found
    raised = read.exception()
    return found if raised is None else {**found, EXCEPTION.id: [raised]}


def _with_end(found: _Hits, outcome: str, signal: int | None, exit_status: int | None) -> _Hits:
    """The causes with what the end itself tells."""
    errors = {id for id, lines in found.items() if not _warned(lines)}
    if outcome == "stopped" and errors <= _BLUNT:
        return {}
    if signal in _ASKED and errors <= _BLUNT:
        return {TERMINATED.id: []}
    by_signal = _known().get(_BY_SIGNAL.get(signal or 0, ""))
    if by_signal is not None and not any(_known()[id].rank > by_signal.rank for id in found):
        return {by_signal.id: [], **found}
    if outcome == "stuck":
        return {STUCK.id: [], **found}
    if outcome == "died" and exit_status == 0 and not errors:
        return {QUIT.id: [], **found}
    return found


def _warned(lines: list[tuple[int, str]]) -> bool:
    """Only warnings say so: a start survives them, so anything else is likelier."""
    return bool(lines) and all(_WARNING.search(line) for _, line in lines)


def _signal(exit_status: int | None) -> int | None:
    """The signal that ended it: Popen says -9, a shell or a container 137 (bash(1), EXIT STATUS)."""
    if exit_status is None or exit_status == 0:
        return None
    return -exit_status if exit_status < 0 else exit_status - 128 if exit_status > 128 else None


@dataclass
class _Log:
    """What the last life in a log shows: lines by cause while it was starting, up and stopping; what was slow."""

    stages: dict[str, _Hits] = field(default_factory=lambda: {"starting": {}, "up": {}, "stopping": {}})
    slow: _Hits = field(default_factory=dict)
    came_up: bool = False
    stage: str = "starting"
    exceptions: dict[str, Exceptions] = field(
        default_factory=lambda: {"starting": Exceptions(), "up": Exceptions(), "stopping": Exceptions()}
    )

    def add(self, number: int, line: str) -> None:
        """Read one line."""
        if "Application startup complete" in line or line.endswith(" Connected"):
            self.stage, self.came_up = "up", True
        elif "Shutting down" in line or "Shutdown initiated" in line:
            self.stage = "stopping"
        self.exceptions[self.stage].feed(number, line)
        for id in _signs(line):
            hits = self.slow if _known()[id].slows else self.stages[self.stage]
            hits.setdefault(id, []).append((number, line[:300]))

    def exception(self) -> Line | None:
        """Return the line that names the error: the first of a start, the last of an engine that was up.

        One that only says that another process failed is none.
        """
        found = self.exceptions["up" if self.came_up else "starting"]
        # an engine that is up survives the failures of requests, so its last error ended it
        raised = [*reversed(found.raised)] if self.came_up else found.raised
        for line in (*raised, *reversed(found.loose)):
            if not _BLUNT.intersection(_signs(line[1])):
                return line
        return None


def _read(text: str) -> _Log:
    """Return what the log's last life shows."""
    log = _Log()
    for number, line in _lines(text):
        if not line:
            continue
        if "vLLM API server version" in line:
            log = _Log()
        log.add(number, line)
    return log


@lru_cache(maxsize=4096)
def _signs(line: str) -> tuple[str, ...]:
    """The signatures that a line shows. What a log repeats is looked at once."""
    if _HARMLESS.search(line):
        return ()
    return tuple(signature.id for signature, expression in _compiled() if expression.search(line))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Bare lines with their numbers; a progress bar's redraws (carriage returns) share one number."""
    for number, raw in enumerate(text.split("\n"), start=1):
        for part in raw.split("\r"):
            yield number, bare(part[:_MOST_LINE])


def _cause(signature: Signature, evidence: list[tuple[int, str]], phase: str) -> Cause:
    words, values = signature.id, {}
    if signature is EXCEPTION:
        values = {"error": redact_text(evidence[0][1])}
    if words == "device_oom" and phase in _FILLS:
        words = _FILLS[phase]
    return Cause(
        id=signature.id,
        title=message(f"diagnose.{words}", **values),
        remedy=message(f"diagnose.{words}_fix"),
        commands=signature.commands,
        evidence=tuple(evidence[:_MOST_EVIDENCE]),
        # what was only warned of may not be what it failed of
        permanent=signature.permanent and not _warned(evidence),
        source=signature.source,
    )


def _last_working(follower: Follower, *, ends: bool) -> str:
    """The phase in which it failed: the last one that is no failure, and no end unless ``ends``."""
    passed = {"failed"} if ends else {"failed", "stopping"}
    names = [phase.name for phase in follower.progress.phases if phase.name not in passed]
    return names[-1] if names else "start"
