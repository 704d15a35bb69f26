"""Signatures of failures in a log: the table of profiles/signatures.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.yaml_reader import shipped


@dataclass(frozen=True)
class Signature:
    """One cause and the lines that show it.

    The fields are those of the table, explained there.
    """

    id: str
    patterns: tuple[str, ...]
    rank: int
    permanent: bool
    source: str
    commands: tuple[str, ...] = ()
    slows: bool = False
    follows: bool = False
    notes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def suited_notes(self, facts: Mapping[str, str]) -> list[str]:
        """Return the sentences of the remedy whose conditions are found in these facts."""
        return [
            text
            for text, conditions in self.notes.items()
            if all(re.search(pattern, facts.get(name, "")) for name, pattern in conditions.items())
        ]

    @property
    def blunt(self) -> bool:
        """Return True if it shows that the engine ended, not why.

        An ordered end shows it, too.
        """
        return self.follows and self.rank < EXCEPTION.rank


# shown by the exit status, or by the message of the shell that waited for it
KILLED = Signature(
    "killed",
    (r"^(?:\S+: (?:line |行 ?|第 ?)\d+(?: ?行)?[:：] *\d+ +)?(?:Killed\b|已杀死)",),
    30,
    False,
    "signal(7); bash(1) and its zh_CN catalogue",
    ("dmesg | tail",),
)
TERMINATED = Signature("terminated", (), 20, False, "signal(7)")
# reported by the supervisor
STUCK = Signature(
    "stuck", (), 25, False, "assumed: no line of its log for the phase's time limit", ("top",)
)
QUIT = Signature("quit", (), 10, False, "exit status 0 of an engine that was not stopped")
# where no signature fits: it explains more than the end of a process, and less than any other error
EXCEPTION = Signature(
    "exception", (), 18, False, "the log's first traceback; of an engine that was up, its last"
)


@cache
def signatures() -> tuple[Signature, ...]:
    """Return every signature of the table, in its order."""
    document = shipped("signatures.yaml")
    return codec.read(tuple[Signature, ...], document["signatures"])
