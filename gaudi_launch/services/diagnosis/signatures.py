"""Signatures of failures in a log: the table of profiles/signatures.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gaudi_launch.paths import profiles_dir


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
    import yaml

    document = yaml.safe_load((profiles_dir() / "signatures.yaml").read_text(encoding="utf-8"))
    return tuple(
        Signature(
            id=entry["id"],
            patterns=tuple(entry["patterns"]),
            rank=entry["rank"],
            permanent=entry["permanent"],
            source=entry["source"],
            commands=tuple(entry.get("commands", ())),
            slows=entry.get("slows", False),
        )
        for entry in document["signatures"]
    )
