"""Send one request to a server, within a time that the server cannot extend.

Proxies are bypassed: they would intercept 127.0.0.1. The standard library alone: `ps`, `status` and
the supervisor call it often, so they do not import requests (`core.base.http_client` does).
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    UnknownHandler,
)

from gaudi_launch.core.base.plain_json import plain_json
from gaudi_launch.core.services.server_answers import true_status

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class ProbeResult:
    """An answer; without one, ``trouble`` is the reason and the status 0."""

    status: int
    body: bytes
    trouble: str | None = None

    def why(self, path: str) -> str:
        """Return the reason of a failure at this path."""
        if self.trouble is None:
            return f"{path}: {self.status}"
        return self.trouble

    @property
    def document(self) -> Any:
        try:
            return plain_json(self.body)
        except ValueError:
            return None


class _NoRedirect(HTTPRedirectHandler):
    """Treats a redirect as the answer, never followed: it would leak the API key."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(
    url: str,
    timeout: float,
    api_key: str | None = None,
    question: dict[str, Any] | None = None,
    most_bytes: int = _MOST_BYTES,
    verify: bool = True,
) -> ProbeResult:
    """Send one request, a POST with a ``question``; return the answer of any status.

    Proxies are bypassed and redirects not followed; it takes ``timeout`` seconds at most, however
    slowly the server sends; ``most_bytes`` of the body are read. ``verify`` False: the certificate
    is not checked.
    """
    headers: dict[str, str] = {}
    body = None
    if question is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(question).encode()
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    limit = _Limit()
    timer = threading.Timer(timeout, limit.cut)
    timer.daemon = True
    timer.start()
    try:
        request = Request(url, data=body, headers=headers)
        answer = _exchange(_opener(url, limit, verify), request, timeout, most_bytes)
    finally:
        timer.cancel()
    if limit.over:
        # a truncated answer may look complete
        return _failed("timed out")
    return answer


def _failed(reason: str) -> ProbeResult:
    return ProbeResult(0, b"", reason)


def _exchange(
    opener: OpenerDirector, request: Request, timeout: float, most_bytes: int
) -> ProbeResult:
    try:
        with opener.open(request, timeout=timeout) as response:
            body = response.read(most_bytes)
            return ProbeResult(true_status(response.status, body), body)
    except HTTPError as error:
        with error:
            return ProbeResult(error.code, error.read(most_bytes))
    except URLError as error:
        return _failed(str(error.reason))
    except (OSError, ValueError) as error:
        return _failed(str(error) or type(error).__name__)
    except Exception as error:
        # http.client raises its own errors for answers that are not HTTP
        return _failed(type(error).__name__)


class _Limit:
    """Ends a request after its time; a socket's timeout restarts with every byte."""

    def __init__(self) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def watch(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
            if self.over:
                self._shut()

    def cut(self) -> None:
        with self._lock:
            self.over = True
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _opener(url: str, limit: _Limit, verify: bool) -> OpenerDirector:
    """Return an opener without proxies and redirects.

    Certificates are read for https only, which takes longer than a local answer.
    """
    context = None
    if not verify:
        context = _unverified()

    class Connection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            limit.watch(self.sock)

    class SecureConnection(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            limit.watch(self.sock)

    class Handler(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Connection, request)

    class SecureHandler(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(SecureConnection, request, context=context)

    opener = OpenerDirector()
    for handler in (
        Handler,
        HTTPDefaultErrorHandler,
        HTTPErrorProcessor,
        UnknownHandler,
        _NoRedirect,
    ):
        opener.add_handler(handler())
    if url.lower().startswith("https:"):
        opener.add_handler(SecureHandler(context=context))
    return opener


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
