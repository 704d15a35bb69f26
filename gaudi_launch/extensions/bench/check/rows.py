"""The result of one request of a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.bench.client import ServerError

Verdict = Literal["ok", "fail", "skip"]
Fault = Literal["", "way", "engine"]


@dataclass(frozen=True)
class CheckRow:
    """One request: its result, as a sentence, and its figures.

    ``fault``: ours (address, network, key) or the engine's.
    """

    name: str
    verdict: Verdict
    sentence: Message
    seconds: float = 0.0
    values: Mapping[str, Any] = field(default_factory=dict)
    fault: Fault = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "verdict": self.verdict,
            "id": self.sentence.id,
            "message": self.sentence.render(),
            "seconds": round(self.seconds, 4),
            "values": dict(self.values),
        }


def failed(name: str, error: ServerError) -> CheckRow:
    """Return the row of a failed request."""
    values = {"kind": error.kind, "status": error.status, "detail": error.detail}
    # 404 and the like: this address is not a server of this kind; 5xx: it is one, and it failed
    fault: Fault = "engine"
    if error.kind == "connect" or (error.kind == "status" and error.status < 500):
        fault = "way"
    if error.kind == "status" and error.status in (401, 403):
        sentence = message("measure.fail_key", status=error.status)
    elif error.kind == "status":
        sentence = message("measure.fail_status", status=error.status, why=error.detail)
    else:
        sentence = message(f"measure.fail_{error.kind}", why=error.detail)
    return CheckRow(name, "fail", sentence, values=values, fault=fault)
