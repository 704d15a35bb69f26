"""Judge the log of a failed launch by the table of signatures. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from signal import SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.engines.conditions import Condition
from gaudi_launch.core.engines.launched import Launched, concerning
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.services.diagnosis.drift import is_mismatch
from gaudi_launch.core.services.diagnosis.exceptions import WRAPS, Errors, Line, LogError
from gaudi_launch.core.services.diagnosis.signatures import (
    EXCEPTION,
    KILLED,
    QUIT,
    STUCK,
    TERMINATED,
    Signature,
    signatures,
)
from gaudi_launch.core.services.log.follow import READY, STOPPING, Follower
from gaudi_launch.core.services.log.line import LogLine, lines_of, read_line

# the first that is found names the engine
_ENGINES = (
    (
        "other",
        re.compile(r"(?:detected platform|device_config=)\s?(?:cpu|cuda|rocm)|plugin cpu is act"),
    ),
    ("tgi", re.compile(r"\btext_generation_(?:launcher|router|server)\b")),
    ("vllm-fork", re.compile(r"vllm-fork|gaudi000|\+Gaudi-|detected platform hpu|\bengine\.py:\d")),
    ("vllm-gaudi", re.compile(r"vllm[-_]gaudi|plugin hpu is activated")),
    ("vllm-gaudi", re.compile(r"\(?(?:EngineCore|Worker_?TP|APIServer)|\[core\.py:\d|\bvllm[./]")),
)
_FACTS = {
    "release": re.compile(
        r"vLLM API server version v?(\d[\w.+]{0,60})|LLM engine \(v(\d[\w.+]{0,60})\)"
        r"|/vllm-(\d[\w.]{0,60})[^/]{0,60}\.egg/"
    ),
    "plugin": re.compile(r"vllm[-_]gaudi(?:==|[ -]v?)(\d{1,4}\.\d{1,4}\.[\w.+]{1,40})"),
    "model": re.compile(r"Resolved architecture: (\w{1,100})"),
    "method": re.compile(r"\bquantization='?(\w{1,40})"),
    "options": re.compile(r"((?:non-default args: |args: Namespace\().{0,4000})"),
}


def facts_of(text: str) -> Mapping[str, str]:
    """Return engine, release of vLLM, plugin, model class, method and options.

    "" is unknown. The engine is "other" for one that does not use Gaudi cards.
    """
    facts = {"engine": next((name for name, sign in _ENGINES if sign.search(text)), "")}
    for name, expression in _FACTS.items():
        found = expression.search(text)
        values = found.groups() if found is not None else ()
        facts[name] = next((value for value in values if value), "")
    return facts


_MOST_EVIDENCE = 3
# an error inside of the plugin that no pattern finds
_PAIR = "pair_mismatch"
# its launcher ends an engine that has lost its port, long before a time limit
_PORT = "port_in_use"
# a line that only shows the configuration, or a warning that launches survive, is not evidence
_HARMLESS = re.compile(
    r"args: Namespace|non-default args|UserWarning|FutureWarning|DeprecationWarning"
)
# that there is no bucket is logged at level INFO, before the failure
_TELLING = "Generated 0 "
# the engine logs the unexpected end of one of its processes as a warning
_ENDED = "unexpectedly"
_CERTAIN_RANK = 90
_RELEASED = re.compile(r"\d+\.\d+\.\d+")
_OPTION = re.compile(r"\b(\w{1,60})'?[:=] ?'?(?!False|None)([^,'\")}]{1,200})")


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
    notes: tuple[Message, ...] = ()

    @property
    def remedies(self) -> list[str]:
        """Return the remedy, and its sentences for this log."""
        return [each.render() for each in (self.remedy, *self.notes)]

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
            "remedy": "\n".join(self.remedies),
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

    @property
    def port_in_use(self) -> bool:
        """Return True if the likeliest cause is a port of another process."""
        return bool(self.causes) and self.causes[0].id == _PORT


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
    facts = facts_of(text)
    log = _read(text)
    reported = bool(log.errors["starting"].found) and not log.came_up
    found = _of_failure(log, end, reported=reported)
    # output after the failure, of an ordered end, does not show where it failed
    ordered = not (found or reported) or found is log.stages["stopping"]
    where = phase or _last_working(follower, ends=ordered)
    found = _with_end(found, end)
    ended_itself = outcome != "stopped" and TERMINATED.id not in found
    if ended_itself and (end.bad or reported):
        found = _with_error(found, log, facts)
    found = _ranked(found)
    failed = bool(found) or end.bad or (reported and outcome != "stopped")
    if log.came_up and not failed and not outcome:
        found = _with_error(_errors(log.stages["up"]), log, facts)
    about = {**facts, "phase": where}
    causes = tuple(_cause(_known()[id], found[id], about) for id in _likeliest_first(found))
    slow = {**log.slow, **({} if log.came_up or failed else _warnings(log.stages["starting"]))}
    findings = tuple(_cause(_known()[id], lines, about) for id, lines in slow.items())
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
# after these no engine is running
_DEADLY = {"crashed", "oom_killer", "device_oom", "bucket_hang", KILLED.id}


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
    found = log.stages["up"]
    if end.bad or any(id in _DEADLY or _known()[id].blunt for id in found):
        return found
    return {}


def _errors(found: _Hits) -> _Hits:
    """Return the causes that more than warnings show."""
    return {id: lines for id, lines in found.items() if not _warned(lines)}


def _warnings(found: _Hits) -> _Hits:
    """Return the causes of an unfinished start that a warning shows for certain."""
    return {id: lines for id, lines in found.items() if _known()[id].rank >= _CERTAIN_RANK}


def _ranked(found: _Hits) -> _Hits:
    """Return the causes without those of rank 0 and blunt ones.

    They are kept where there are no others.
    """
    telling = {id: lines for id, lines in found.items() if _known()[id].rank} or found
    causes = {id: lines for id, lines in telling.items() if not _known()[id].blunt}
    if _errors(causes):
        return causes
    return telling


def _likeliest_first(found: _Hits) -> list[str]:
    """Return the causes: errors before warnings, then by rank, then by line."""
    errors = [lines[0][0] for lines in _errors(found).values() if lines]

    def place(id: str) -> tuple[bool, int, list[int]]:
        numbers = [number for number, _ in found[id]]
        rank = _known()[id].rank
        if _known()[id].follows and numbers and errors and numbers[0] > min(errors):
            rank = min(rank, EXCEPTION.rank - 1)
        return _warned(found[id]), -rank, numbers

    return sorted(found, key=place)


@cache
def _known() -> dict[str, Signature]:
    own = (KILLED, TERMINATED, STUCK, QUIT, EXCEPTION)
    return {signature.id: signature for signature in (*signatures(), *own)}


def _with_error(found: _Hits, log: _Log, facts: Mapping[str, str]) -> _Hits:
    """Return the causes with the first error that none of them explains.

    It is left out below an error of a known cause.
    """
    error = log.error()
    if error is None:
        return found
    known = {id: lines for id, lines in _errors(found).items() if lines and not _known()[id].blunt}
    first = min((lines[0][0] for lines in known.values()), default=error.number + 1)
    if first <= error.number and any(_known()[id].rank > EXCEPTION.rank for id in known):
        return found
    if is_mismatch(error, facts["engine"]):
        return {**found, _PAIR: [(error.number, error.text)]}
    lines = [(error.number, error.text)]
    later = log.error(after=error.number, raised=True)
    if later is not None and not error.raised and not known:
        lines.append((later.number, later.text))
    return {**found, EXCEPTION.id: lines}


def _with_end(found: _Hits, end: _End) -> _Hits:
    """Return the causes with the meaning of the exit status itself."""
    errors = _errors(found).keys()
    if all(_known()[id].blunt for id in errors):
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
    return bool(lines) and all(
        read_line(line).level == "warning" and _ENDED not in line for _, line in lines
    )


@dataclass
class _Log:
    """The lines of a log's last run, by cause: starting, up, stopping, slow requests."""

    stages: dict[str, _Hits] = field(
        default_factory=lambda: {"starting": {}, "up": {}, "stopping": {}}
    )
    slow: _Hits = field(default_factory=dict)
    came_up: bool = False
    stage: str = "starting"
    errors: dict[str, Errors] = field(
        default_factory=lambda: {"starting": Errors(), "up": Errors(), "stopping": Errors()}
    )

    def add(self, number: int, line: LogLine) -> None:
        """Read one line."""
        if READY.search(line.text):
            self.stage, self.came_up = "up", True
        elif STOPPING.search(line.text):
            self.stage = "stopping"
        # Kubernetes warns of a pod that is up of what restarted others
        if not (line.level == "event" and self.came_up):
            self.errors[self.stage].feed(number, line)
        for id in _signs(line):
            hits = self.stages[self.stage]
            if _known()[id].slows:
                hits = self.slow
            hits.setdefault(id, []).append((number, line.text[:300]))

    def error(self, after: int = 0, *, raised: bool = False) -> LogError | None:
        """Return the first error that no signature explains.

        Of an engine that was up it is the last: it survived the failures of requests.
        ``raised``: only one of a traceback.
        """
        found = self.errors["starting"].found
        if self.came_up:
            found = self.errors["up"].found[::-1]
        found = [each for each in found if not WRAPS.match(each.text)] or found
        for error in found:
            if error.number <= after or (raised and not error.raised):
                continue
            if not _signs(read_line(error.text)):
                return error
            before = error.before
            if before is not None and _follows(error.text) and not _signs(read_line(before.text)):
                return before
        return None


def _follows(line: str) -> bool:
    """Return True if a line shows nothing but consequences of another error."""
    return all(_known()[id].follows for id in _signs(read_line(line)))


def _read(text: str) -> _Log:
    """Return the content of the log's last run."""
    log = _Log()
    for number, line in lines_of(text):
        if not line.text:
            continue
        if "vLLM API server version" in line.text:
            log = _Log()
        log.add(number, line)
    return log


@lru_cache(maxsize=4096)
def _signs(line: LogLine) -> tuple[str, ...]:
    """Return the signatures that a line shows. Repeated lines are checked once."""
    if _HARMLESS.search(line.text) or (line.level == "info" and _TELLING not in line.text):
        return ()
    return tuple(
        signature.id for signature, expression in _compiled() if expression.search(line.text)
    )


def _cause(signature: Signature, evidence: list[Line], facts: Mapping[str, str]) -> Cause:
    words, values = signature.id, {}
    if signature is EXCEPTION:
        values = {"error": redact_text(evidence[0][1])}
    if words == "device_oom" and facts["phase"] in _FILLS:
        words = _FILLS[facts["phase"]]
    about = {**facts, "line": " ".join(line for _, line in evidence)}
    return Cause(
        id=signature.id,
        title=message(f"diagnose.{words}", **values),
        remedy=message(f"diagnose.{words}_fix"),
        commands=tuple(_for_engine(command, facts) for command in signature.commands),
        evidence=tuple(evidence[:_MOST_EVIDENCE]),
        # a warning may not be the cause of the failure
        permanent=signature.permanent and not _warned(evidence),
        source=signature.source,
        notes=(
            *(message(f"diagnose.{each}", **facts) for each in signature.suited_notes(about)),
            *(
                each.sentence
                for each in _conditions(facts)
                if each.cause and re.search(each.cause, f"{words} {about['line']}")
            ),
        ),
    )


def _conditions(facts: Mapping[str, str]) -> tuple[Condition, ...]:
    """Return the conditions of the log's release that its model and options meet."""
    model = Model("", "", architecture=facts["model"], quantization=facts["method"])
    options = _OPTION.findall(facts["options"])
    settings = {"--" + name.replace("_", "-"): value for name, value in options}
    return concerning(f"{facts['engine']}@{facts['release']}", Launched(model, "", settings))


def _for_engine(command: str, facts: Mapping[str, str]) -> str:
    """Return a command with the log's engine, in the release that it shows."""
    engine = facts["engine"] or "vllm-gaudi"
    if engine == "vllm-gaudi" and _RELEASED.fullmatch(facts["release"]):
        engine = f"{engine}@{facts['release']}"
    return command.replace("ENGINE", engine)


def _last_working(follower: Follower, *, ends: bool) -> str:
    """Return the last phase that is not a failure, nor an end unless ``ends``."""
    passed = {"failed"}
    if not ends:
        passed = {"failed", "stopping"}
    names = [phase.name for phase in follower.progress.phases if phase.name not in passed]
    *_, last = ("start", *names)
    return last
