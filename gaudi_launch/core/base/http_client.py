"""The HTTP client for single requests: deadline, size limit, proxies.

It uses requests.

A loopback address gets no proxy. Two others exist for a reason: `extensions.bench.client` (asyncio
and h11) records when each chunk arrives, and `core.services.probe` is the standard library alone,
because its text runs on hosts without this package. requests is imported when a request is made: it
takes 0.1 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from gaudi_launch.core.base.server_address import is_loopback

if TYPE_CHECKING:
    import requests

_T = TypeVar("_T")
_PIECE = 1 << 16


def get(
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    connect: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the body of an answer without error status; redirects are followed.

    ``connect`` limits the time for a connection. Raises requests.RequestException: also for an
    answer that takes longer than ``seconds`` in total, however slowly the server sends, or that is
    larger than ``most_bytes``.
    """
    deadline = time.monotonic() + seconds
    limits = (min(seconds, connect or seconds), seconds)

    def exchange() -> bytes:
        with (
            _session(url) as session,
            session.get(url, timeout=limits, headers=headers, stream=True) as answer,
        ):
            answer.raise_for_status()
            return _body(answer, deadline, most_bytes)

    return _within(seconds, exchange)


def head(url: str, *, seconds: float) -> int:
    """Return the status of an answer to HEAD; redirects are not followed.

    Raises requests.RequestException.
    """

    def exchange() -> int:
        with _session(url) as session, session.head(url, timeout=seconds, stream=True) as answer:
            return answer.status_code

    return _within(seconds, exchange)


def names_this_machine(url: str) -> bool:
    """Return whether a URL names this machine; False for an unreadable one."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _session(url: str) -> requests.Session:
    import requests

    session = requests.Session()
    if names_this_machine(url):
        # a proxy would treat 127.0.0.1 as itself
        session.trust_env = False
    return session


def _body(answer: requests.Response, deadline: float, most_bytes: int) -> bytes:
    import requests

    body = bytearray()
    for piece in answer.iter_content(_PIECE):
        body += piece
        if len(body) > most_bytes:
            raise requests.RequestException(f"more than {most_bytes} bytes")
        if time.monotonic() > deadline:
            raise requests.Timeout("timed out")
    return bytes(body)


def _within(seconds: float, work: Callable[[], _T]) -> _T:
    """Return the result of ``work``, or raise requests.Timeout after its time.

    A socket's timeout restarts with each byte, and a name's resolution has none: the request runs
    in a thread that is left behind, as a daemon, when it takes longer.
    """
    results: list[_T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="http", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    import requests

    raise requests.Timeout("timed out")
