"""Why a start failed: the log against the table of signatures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from signal import SIGKILL
from typing import Any

from gaudi_launch.messages import Message, message
from gaudi_launch.services.follow import Follower, bare
from gaudi_launch.services.signatures import KILLED, Signature, signatures

_MOST_EVIDENCE = 3
_MOST_LINE = 2000
# a line that only tells what is configured, or a warning that starts survive, is no evidence
_HARMLESS = re.compile(
    r"^(?:INFO\b|DEBUG\b)|Found ulimit of|failed to automatically increase|args: Namespace|non-default args|"
    r"UserWarning|FutureWarning|DeprecationWarning"
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
    """Causes, the likeliest first. ``phase`` is the one in which it failed, ``failed`` False for a healthy log."""

    causes: tuple[Cause, ...]
    phase: str
    failed: bool

    @property
    def permanent(self) -> bool:
        """Would starting again without a change fail again?"""
        return bool(self.causes) and self.causes[0].permanent


@cache
def _compiled() -> tuple[tuple[Signature, re.Pattern[str]], ...]:
    return tuple((signature, re.compile("|".join(signature.patterns))) for signature in signatures())


def diagnose(text: str, *, exit_status: int | None = None, phase: str = "") -> Diagnosis:
    """Judge a log. ``exit_status`` is the engine's (negative: a signal), ``phase`` where it was, if known."""
    follower = Follower()
    progress = follower.feed(text + "\n", 0.0)
    reached = phase or _last_working(follower)
    hits: dict[str, list[tuple[int, str]]] = {}
    order: dict[str, Signature] = {}
    stopping = False
    for number, line in _lines(text):
        # what is printed after an ordered stop was asked for is the stop's own noise
        stopping = stopping or "Shutting down" in line or "Shutdown initiated" in line
        if not line or stopping or _HARMLESS.search(line):
            continue
        for signature, expression in _compiled():
            if expression.search(line):
                order.setdefault(signature.id, signature)
                hits.setdefault(signature.id, []).append((number, line[:300]))
    if exit_status == -SIGKILL and not any(s.rank > KILLED.rank for s in order.values()):
        order[KILLED.id], hits[KILLED.id] = KILLED, []
    ranked = sorted(order.values(), key=lambda s: (-s.rank, hits[s.id][0][0] if hits[s.id] else 0))
    failed = bool(ranked) or progress.phase == "failed" or exit_status not in (None, 0)
    return Diagnosis(tuple(_cause(s, hits[s.id]) for s in ranked), reached, failed)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Bare lines with their numbers; a progress bar's redraws (carriage returns) share one number."""
    for number, raw in enumerate(text.split("\n"), start=1):
        for part in raw.split("\r"):
            yield number, bare(part[:_MOST_LINE])


def _cause(signature: Signature, evidence: list[tuple[int, str]]) -> Cause:
    return Cause(
        id=signature.id,
        title=message(f"diagnose.{signature.id}"),
        remedy=message(f"diagnose.{signature.id}_fix"),
        commands=signature.commands,
        evidence=tuple(evidence[:_MOST_EVIDENCE]),
        permanent=signature.permanent,
        source=signature.source,
    )


def _last_working(follower: Follower) -> str:
    """The phase in which it failed: the last one that is no failure."""
    names = [phase.name for phase in follower.progress.phases if phase.name != "failed"]
    return names[-1] if names else "start"
