"""Steps that may take longer than a second, announced to a display.

The command line shows them; other callers show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from gaudi_launch.core.base.messages import Message, message

Listener = Callable[[Message], AbstractContextManager[None]]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def step(id: str, **values: Any) -> Iterator[None]:
    """Announce what is done inside the block.

    Steps may be nested: the inner one is shown while it lasts.
    """
    listener = _listener.get()
    if listener is None:
        yield
        return
    with listener(message(id, **values)):
        yield


@contextmanager
def shown_by(listener: Listener) -> Iterator[None]:
    """Let ``listener`` show the steps inside."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
