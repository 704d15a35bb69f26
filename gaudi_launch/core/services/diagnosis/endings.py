"""Format an engine's exit status. Kept import-light for `ps`."""

from __future__ import annotations

from gaudi_launch.core.base.messages import text

# by the kind of `supervise.EngineOutcome`
_ENDED = {
    "stopped": "services.ended_stopped",
    "died": "services.ended_died",
    "stuck": "services.ended_stuck",
    "not_started": "services.ended_not_started",
}


def ended(kind: str, status: int | None) -> str:
    """Return the sentence for a kind of `supervise.Outcome` and an exit status.

    A negative status is a signal.
    """
    return text(_ENDED[kind], status=status_words(status))


def status_words(status: int | None) -> str:
    """Return the text of an exit status, or of the signal that ended it."""
    if status is None:
        return "-"
    if status < 0:
        return text("serve.by_signal", number=-status)
    return str(status)
