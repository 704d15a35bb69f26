"""A measuring run: its workload, the result of every request, and its file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import read_json

SCHEMA = 1
# the setting of a saved plan by which the prompts of one step are counted
_MOST_BYTES = 1 << 30
# figures by name
_SUMMARY = dict[str, float | dict[str, float] | None]


@dataclass(frozen=True)
class WorkloadRequest:
    """One request of a workload: arrival (seconds from the start), lengths in tokens."""

    at: float
    input: int
    output: int


@dataclass(frozen=True)
class BenchWorkload:
    """Requests to send, with their arrivals.

    ``arrivals``: own (the trace's times), rate (made at a rate), closed (each waits for a free
    slot). ``concurrency`` is the maximum in progress; None: as many as arrive. ``left_out``
    requests of the source were longer than the server accepts. ``notes`` are those of its reader.
    """

    requests: tuple[WorkloadRequest, ...]
    arrivals: str
    concurrency: int | None
    source: str
    left_out: int = 0
    rate: float | None = None
    notes: tuple[Message, ...] = ()

    def hastened(self, scale: float) -> BenchWorkload:
        """Return the workload with its arrivals ``scale`` times as fast."""
        requests = tuple(replace(each, at=each.at / scale) for each in self.requests)
        return replace(self, requests=requests)

    @property
    def digest(self) -> str:
        """Return a digest of the requests, their times and their limit."""
        rows = [[round(request.at, 4), request.input, request.output] for request in self.requests]
        words = json.dumps([rows, self.arrivals == "closed", self.concurrency])
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "arrivals": self.arrivals,
            "rate": self.rate,
            "concurrency": self.concurrency,
            "requests": len(self.requests),
            "left_out": self.left_out,
            "input_tokens": sum(request.input for request in self.requests),
            "output_tokens": sum(request.output for request in self.requests),
            "digest": self.digest,
            "notes": [note.to_json() for note in self.notes],
        }


@dataclass(frozen=True)
class Sample:
    """One request's result. Times are seconds from the run's start.

    ``at`` is when it had to be sent, ``sent`` when it was; all latencies count from ``at``, so that
    a client or a limit that falls behind shows in them (no coordinated omission). ``gaps`` are
    between pieces of the answer. ``input`` and ``output`` are the server's counts (output: else the
    number of pieces). ``error``: "" or the reason.
    """

    at: float
    sent: float
    wanted_input: int
    wanted_output: int
    first: float | None = None
    last: float | None = None
    gaps: tuple[float, ...] = ()
    input: int | None = None
    output: int = 0
    error: str = ""
    detail: str = ""

    @property
    def ok(self) -> bool:
        return not self.error

    def slowed(self, scale: float) -> Sample:
        """Return the result with all its times multiplied."""
        first = None if self.first is None else self.first * scale
        last = None if self.last is None else self.last * scale
        gaps = tuple(gap * scale for gap in self.gaps)
        return replace(
            self, at=self.at * scale, sent=self.sent * scale, first=first, last=last, gaps=gaps
        )

    def to_json(self) -> dict[str, Any]:
        document = {
            name: value for name, value in vars(self).items() if value not in (None, "", ())
        }
        for name in ("at", "sent", "first", "last"):
            if name in document:
                document[name] = round(document[name], 6)
        if self.gaps:
            document["gaps"] = [round(gap, 5) for gap in self.gaps]
        return document


@dataclass(frozen=True)
class BenchRun:
    """A complete run.

    ``facts``: tool, server, model, engine, when it began; ``summary`` as `statistics.summary` makes
    it, or from another tool's report (then there are no samples).
    """

    facts: Mapping[str, Any]
    workload: Mapping[str, Any]
    summary: Mapping[str, Any]
    samples: tuple[Sample, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """Report whether Ctrl-C ended the run early."""
        return bool(self.facts.get("interrupted"))

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the measurement.

        DONE when every request succeeded, FAILED when some failed, ENGINE when all did,
        INTERRUPTED after Ctrl-C.
        """
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if not self.summary.get("failed"):
            return ExitCode.DONE
        if self.summary.get("completed"):
            return ExitCode.FAILED
        return ExitCode.ENGINE

    def slowed(self, scale: float) -> BenchRun:
        """Return the run with its times multiplied and its rates divided.

        So the times of simulated cards are those of cards, whatever their time scale.
        """
        samples = tuple(sample.slowed(scale) for sample in self.samples)
        summary = {name: _slowed(name, each, scale) for name, each in self.summary.items()}
        return replace(self, samples=samples, summary=summary)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the samples and another tool's report."""
        return {
            "schema": SCHEMA,
            "kind": "bench",
            **dict(self.facts),
            "workload": dict(self.workload),
            "summary": dict(self.summary),
        }


def _slowed(name: str, figure: Any, scale: float) -> Any:
    """Return a figure of a summary, as far as it is a time or a rate."""
    if isinstance(figure, Mapping):
        return {part: round(each * scale, 6) for part, each in figure.items()}
    if figure is not None and name == "seconds":
        return round(figure * scale, 6)
    if figure is not None and name.endswith("_rate"):
        return round(figure / scale, 6)
    return figure


def check_writable(path: Path) -> None:
    """Check that a file can be written, before an hour of measuring.

    Raises LaunchError (USAGE).
    """
    folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise LaunchError("measure.not_writable", ExitCode.USAGE, path=str(path))


def save(run: BenchRun, path: Path) -> None:
    """Write a run, one sample per line. Raises LaunchError (FAILED)."""
    head = json.dumps({**run.to_json(), "report": dict(run.report)}, ensure_ascii=False, indent=1)
    lines = ",\n".join(json.dumps(sample.to_json(), ensure_ascii=False) for sample in run.samples)
    try:
        write_whole(path, f'{head[:-2]},\n "samples": [\n{lines}\n]}}\n')
    except OSError as error:
        raise file_error("measure.save", error, path) from None


def load(path: Path) -> BenchRun:
    """Return a saved run. Raises LaunchError (USAGE) for another file."""
    try:
        document = read_json(path, _MOST_BYTES)
    except OSError as error:
        raise file_error("measure.unreadable", error, path, ExitCode.USAGE) from None
    except ValueError:
        document = None
    try:
        return from_json(document)
    except (KeyError, TypeError, ValueError):
        raise LaunchError("measure.not_a_run", ExitCode.USAGE, path=str(path)) from None


def from_json(document: Any) -> BenchRun:
    """Return the Run of a saved object.

    Raises KeyError, TypeError or ValueError for another object.
    """
    if (
        not isinstance(document, dict)
        or document["kind"] != "bench"
        or document["schema"] != SCHEMA
    ):
        raise ValueError("no run")
    known = {"schema", "kind", "workload", "summary", "samples", "report"}
    facts = {name: value for name, value in document.items() if name not in known}
    return BenchRun(
        facts,
        codec.read(dict[str, Any], document["workload"]),
        codec.read(_SUMMARY, document["summary"]),
        codec.read(tuple[Sample, ...], document["samples"]),
        codec.read(dict[str, Any], document.get("report", {})),
    )
