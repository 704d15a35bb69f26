"""Judge the log of a failed launch by the table of signatures. Pure."""

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
# its launcher ends an engine that has lost its port, long before a time limit
_PORT = "port_in_use"
_MOST_LINE = 2000
# a line that only shows the configuration, or a warning that launches survive, is not evidence
_HARMLESS = re.compile(
    # that there is no bucket is logged at level INFO, before the failure
    r"^(?:INFO\b(?!.*\bGenerated 0 )|DEBUG\b)|args: Namespace|"
    r"non-default args|UserWarning|FutureWarning|DeprecationWarning"
)


# the engine logs the unexpected end of one of its processes as a warning, which counts as an error
# here; Python's own warnings have a file and a line first; huggingface_hub also logs each failed
# attempt, and continues with local files
_WARNING = re.compile(
    r"^(?:WARN(?:ING)?\b(?!.*unexpectedly)|(?:[^:]+:\d+: )?\S{0,100}Warning: )"
    r"|thrown while requesting (?:HEAD|GET) "
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
        """Return the cause with the commands for this model's folder or name."""
        return replace(
            self,
            commands=tuple(each.replace("MODEL", shlex.quote(model)) for each in self.commands),
        )

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
    """Causes, the likeliest first.

    ``phase`` is the one in which it failed, ``failed`` False for a healthy log. ``came_up``: it had
    started before it failed; where it did not fail, causes are those of failed requests. ``at`` is
    the progress of the phase, done and total, (0, 0) where unknown. ``findings`` are causes of slow
    requests; they fail nothing.
    """

    causes: tuple[Cause, ...]
    phase: str
    failed: bool
    came_up: bool = False
    at: tuple[int, int] = (0, 0)
    findings: tuple[Cause, ...] = ()

    @property
    def permanent(self) -> bool:
        """Return True if a restart without a change would fail again.

        An engine that failed under load had started.
        """
        return bool(self.causes) and self.causes[0].permanent and not self.came_up


@cache
def _compiled() -> tuple[tuple[Signature, re.Pattern[str]], ...]:
    known = (*signatures(), KILLED)
    return tuple((signature, re.compile("|".join(signature.patterns))) for signature in known)


def diagnose(
    text: str, *, exit_status: int | None = None, outcome: str = "", phase: str = ""
) -> Diagnosis:
    """Judge a log.

    ``exit_status`` is the engine's (negative: a signal), ``outcome`` its supervisor's result
    (`supervise.Outcome.kind`, "" without one), ``phase`` the last known phase.
    """
    follower = Follower()
    progress = follower.feed(text + "\n", 0.0)
    end = _End(exit_status, outcome)
    reported = progress.phase == "failed"
    log = _read(text)
    found = _of_failure(log, end, reported=reported)
    # output after the failure, of an ordered end, does not show where it failed
    ordered = not found or found is log.stages["stopping"]
    where = phase or _last_working(follower, ends=ordered)
    found = _with_end(found, end)
    ended_itself = outcome != "stopped" and TERMINATED.id not in found
    if ended_itself and (end.bad or reported):
        found = _with_exception(found, log)
    found = _ranked(found)
    failed = bool(found) or end.bad or (reported and outcome != "stopped")
    if log.came_up and not failed and not outcome:
        found = _errors(log.stages["up"])
    causes = tuple(_cause(_known()[id], found[id], where) for id in _likeliest_first(found))
    findings = tuple(_cause(_known()[id], lines, where) for id, lines in log.slow.items())
    return Diagnosis(causes, where, failed, log.came_up, (progress.done, progress.total), findings)


# the phase in which the card's memory ran out decides the remedy
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
# the meaning of a signal alone (signal(7)); the kernel sends SIGBUS where a page of shared memory
# is not available
_BY_SIGNAL: dict[int, str] = {
    SIGKILL: KILLED.id,
    SIGBUS: "shared_memory",
    **dict.fromkeys((SIGABRT, SIGFPE, SIGILL, SIGSEGV), "crashed"),
}
# they show that the engine ended, not why: an ordered end prints them, too
_BLUNT = {"core_failed", "process_gone", "startup_probe", "shard_failed"}
# after these no engine is running
_DEADLY = {*_BLUNT, "crashed", "oom_killer", "device_oom", "bucket_hang", KILLED.id}


@dataclass(frozen=True)
class _End:
    """The end of the engine: exit status and its supervisor's result ("" without)."""

    exit_status: int | None
    outcome: str

    @property
    def bad(self) -> bool:
        """Return True if it ended, and without an order."""
        if self.outcome:
            return self.outcome in ("died", "stuck")
        return self.exit_status not in (None, 0)

    @property
    def signal(self) -> int | None:
        """Return the signal that ended it: -9 of Popen, 137 of a shell or a container.

        One that its supervisor sent explains nothing. Source: bash(1), EXIT STATUS.
        """
        status = self.exit_status
        if status is None or self.outcome not in ("", "died"):
            return None
        if status < 0:
            return -status
        if status > 128:
            return status - 128
        return None


def _of_failure(log: _Log, end: _End, *, reported: bool) -> _Hits:
    """Return the causes in the output of the stage that failed.

    {} of an engine that works. ``reported``: a line of the log says that the launch failed.
    """
    found = _at_failure(log, end)
    if end.bad:
        # output of an ordered stop is ignored, unless nothing else explains a bad end
        return found or log.stages["stopping"] or log.stages["starting"]
    if reported or _errors(found):
        return found
    return {}


def _at_failure(log: _Log, end: _End) -> _Hits:
    if not log.came_up:
        return log.stages["starting"]
    # an engine survives the failure of one request; one that ended did not
    if end.bad or not _DEADLY.isdisjoint(log.stages["up"]):
        return log.stages["up"]
    return {}


def _errors(found: _Hits) -> _Hits:
    """Return the causes that more than warnings show."""
    return {id: lines for id, lines in found.items() if not _warned(lines)}


def _ranked(found: _Hits) -> _Hits:
    """Return the causes without those of rank 0, unless there are no others.

    A warning is not the cause if another cause is known.
    """
    return {id: lines for id, lines in found.items() if _known()[id].rank} or found


def _likeliest_first(found: _Hits) -> list[str]:
    """Return the causes: errors before warnings, then by rank, then by line."""

    def place(id: str) -> tuple[bool, int, list[int]]:
        return _warned(found[id]), -_known()[id].rank, [number for number, _ in found[id]]

    return sorted(found, key=place)


@cache
def _known() -> dict[str, Signature]:
    own = (KILLED, TERMINATED, STUCK, QUIT, EXCEPTION)
    return {signature.id: signature for signature in (*signatures(), *own)}


def _with_exception(found: _Hits, log: _Log) -> _Hits:
    """Return the causes with the first traceback's exception.

    It is left out where an error explains more.
    """
    for id, lines in _errors(found).items():
        if lines and _known()[id].rank > EXCEPTION.rank:
            return found
    raised = log.exception()
    if raised is None:
        return found
    return {**found, EXCEPTION.id: [raised]}


def _with_end(found: _Hits, end: _End) -> _Hits:
    """Return the causes with the meaning of the exit status itself."""
    errors = _errors(found).keys()
    if errors <= _BLUNT:
        if end.outcome == "stopped":
            return {}
        if end.signal in _ASKED:
            return {TERMINATED.id: []}
    by_signal = _known().get(_BY_SIGNAL.get(end.signal or 0, ""))
    if by_signal is not None and not any(_known()[id].rank > by_signal.rank for id in found):
        return {by_signal.id: [], **found}
    if end.outcome == "stuck" and _PORT not in found:
        return {STUCK.id: [], **found}
    if end.outcome == "died" and end.exit_status == 0 and not errors:
        return {QUIT.id: [], **found}
    return found


def _warned(lines: list[tuple[int, str]]) -> bool:
    """Return True if only warnings show this cause.

    A launch survives them, so any other cause is likelier.
    """
    return bool(lines) and all(_WARNING.search(line) for _, line in lines)


@dataclass
class _Log:
    """The lines of a log's last run, by cause: starting, up, stopping, slow requests."""

    stages: dict[str, _Hits] = field(
        default_factory=lambda: {"starting": {}, "up": {}, "stopping": {}}
    )
    slow: _Hits = field(default_factory=dict)
    came_up: bool = False
    stage: str = "starting"
    exceptions: dict[str, Exceptions] = field(
        default_factory=lambda: {
            "starting": Exceptions(),
            "up": Exceptions(),
            "stopping": Exceptions(),
        }
    )

    def add(self, number: int, line: str) -> None:
        """Read one line."""
        if "Application startup complete" in line or line.endswith(" Connected"):
            self.stage, self.came_up = "up", True
        elif "Shutting down" in line or "Shutdown initiated" in line:
            self.stage = "stopping"
        self.exceptions[self.stage].feed(number, line)
        for id in _signs(line):
            hits = self.stages[self.stage]
            if _known()[id].slows:
                hits = self.slow
            hits.setdefault(id, []).append((number, line[:300]))

    def exception(self) -> Line | None:
        """Return the line that names the error.

        It is the first of a failed launch, the last of an engine that was up. A line that only
        reports the failure of another process does not count.
        """
        found = self.exceptions["starting"]
        raised = found.raised
        if self.came_up:
            # an engine that is up survives the failures of requests, so its last error ended it
            found = self.exceptions["up"]
            raised = found.raised[::-1]
        for line in (*raised, *reversed(found.loose)):
            if not _BLUNT.intersection(_signs(line[1])):
                return line
        return None


def _read(text: str) -> _Log:
    """Return the content of the log's last run."""
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
    """Return the signatures that a line shows. Repeated lines are checked once."""
    if _HARMLESS.search(line):
        return ()
    return tuple(signature.id for signature, expression in _compiled() if expression.search(line))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield bare lines with their numbers.

    A progress bar's redraws (carriage returns) share one number.
    """
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
        # a warning may not be the cause of the failure
        permanent=signature.permanent and not _warned(evidence),
        source=signature.source,
    )


def _last_working(follower: Follower, *, ends: bool) -> str:
    """Return the last phase that is not a failure, nor an end unless ``ends``."""
    passed = {"failed"}
    if not ends:
        passed = {"failed", "stopping"}
    names = [phase.name for phase in follower.progress.phases if phase.name not in passed]
    *_, last = ("start", *names)
    return last
