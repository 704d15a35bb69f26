"""How an engine ended, in a few words. Light: `ps` needs it."""

from __future__ import annotations

from gaudi_launch.messages import text


def ended(kind: str, status: int | None) -> str:
    """``kind`` is that of `supervise.Outcome`, ``status`` the exit status, negative for a signal."""
    return text(f"services.ended_{kind}", status=status_words(status))


def status_words(status: int | None) -> str:
    """An exit status, or the signal that ended it."""
    if status is None:
        return "-"
    return text("serve.by_signal", number=-status) if status < 0 else str(status)
