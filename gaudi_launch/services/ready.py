"""Does it answer? /health alone is not enough (an engine was seen healthy whose first request killed it): the
models are asked for, then one tiny completion. Proxies are passed by: they would swallow 127.0.0.1."""

from __future__ import annotations

import errno
import json
import socket
import time
from dataclasses import dataclass
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

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Readiness:
    """``stage`` is how far it got: connect, health, models, completion, ready. ``detail`` says why not further."""

    ready: bool
    stage: str
    detail: str = ""
    model: str | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def document(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def probe(
    base_url: str, *, timeout: float = 5.0, api_key: str | None = None, complete: bool = True, tgi: bool = False
) -> Readiness:
    """Ask a server at ``base_url`` (no path) whether it answers. Never raises; the key is sent, never shown.

    ``tgi``: the server is TGI, which is asked in its own words (/info, /generate).
    """
    health = ask(f"{base_url}/health", min(timeout, 5.0), api_key)
    if isinstance(health, str):
        return Readiness(False, "connect", health)
    if health.status != 200:
        return Readiness(False, "health", f"/health: {health.status}")
    if tgi:
        return _probe_tgi(base_url, timeout, api_key, complete)
    models = ask(f"{base_url}/v1/models", min(timeout, 10.0), api_key)
    if isinstance(models, str):
        return Readiness(False, "models", models)
    if models.status == 404:
        return _probe_tgi(base_url, timeout, api_key, complete)
    name = _first_model(models.document)
    if models.status != 200 or name is None:
        return Readiness(False, "models", f"/v1/models: {models.status}")
    if not complete:
        return Readiness(True, "ready", "", name)
    question = {"model": name, "prompt": "1", "max_tokens": 1, "temperature": 0}
    answer = ask(f"{base_url}/v1/completions", timeout, api_key, question)
    if isinstance(answer, str):
        return Readiness(False, "completion", answer, name)
    if answer.status in (404, 405, 501) or (answer.status == 400 and b"does not support" in answer.body):
        # embedding and rerank models have no completions; that they list their model must do
        return Readiness(True, "ready", "no completions", name)
    if answer.status != 200 or not _has_choice(answer.document):
        return Readiness(False, "completion", f"/v1/completions: {answer.status}", name)
    return Readiness(True, "ready", "", name)


def _probe_tgi(base_url: str, timeout: float, api_key: str | None, complete: bool) -> Readiness:
    """TGI, and what has no /v1/models: /info names the model, /generate answers."""
    info = ask(f"{base_url}/info", min(timeout, 10.0), api_key)
    if isinstance(info, str) or info.status != 200 or not isinstance(info.document, dict):
        return Readiness(False, "models", "neither /v1/models nor /info")
    name = str(info.document.get("model_id", "")) or None
    if not complete:
        return Readiness(True, "ready", "", name)
    question = {"inputs": "1", "parameters": {"max_new_tokens": 1}}
    answer = ask(f"{base_url}/generate", timeout, api_key, question)
    # an image's server is asked in text as well; the answer may be empty, but it is there
    if isinstance(answer, str) or answer.status != 200 or not _has_text(answer.document):
        detail = answer if isinstance(answer, str) else f"/generate: {answer.status}"
        return Readiness(False, "completion", detail, name)
    return Readiness(True, "ready", "", name)


class _NoRedirect(HTTPRedirectHandler):
    """A redirect is an answer, never followed: it would carry the API key to whoever it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(
    url: str,
    timeout: float,
    api_key: str | None = None,
    question: dict[str, Any] | None = None,
    most_bytes: int = _MOST_BYTES,
) -> Answer | str:
    """One request, a POST where there is a ``question``: the answer of any status, or why there is none.

    Proxies are passed by and redirects not followed; ``timeout`` in seconds, ``most_bytes`` of the body are read.
    """
    headers = {"Content-Type": "application/json"} if question is not None else {}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    body = json.dumps(question).encode() if question is not None else None
    try:
        request = Request(url, data=body, headers=headers)
        with _opener(url).open(request, timeout=timeout) as response:
            return Answer(response.status, _body(response, time.monotonic() + timeout, most_bytes))
    except HTTPError as error:
        with error:
            return Answer(error.code, error.read(_MOST_BYTES))
    except URLError as error:
        return str(error.reason)
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    except Exception as error:
        # http.client raises its own kinds for answers that are no HTTP
        return type(error).__name__


def _opener(url: str) -> OpenerDirector:
    """No proxy, no redirect; certificates are read for https only, which takes longer than a local answer."""
    opener = OpenerDirector()
    for handler in (HTTPHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor, UnknownHandler, _NoRedirect):
        opener.add_handler(handler())
    if url.lower().startswith("https:"):
        opener.add_handler(HTTPSHandler())
    return opener


def _body(response: Any, deadline: float, most_bytes: int) -> bytes:
    """What it answers, until the time is over: a server that sends a byte now and then is not waited for."""
    parts: list[bytes] = []
    size = 0
    while size < most_bytes and (piece := response.read1(1 << 16)):
        parts.append(piece)
        size += len(piece)
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    return b"".join(parts)


def _first_model(document: Any) -> str | None:
    try:
        return str(document["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        return None


def _has_choice(document: Any) -> bool:
    return isinstance(document, dict) and bool(document.get("choices"))


def _has_text(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("generated_text"), str)


def port_free(host: str, port: int) -> bool:
    """Could a server listen there now? Raises OSError when none ever could: no such address here, no such port."""
    if not 0 <= port <= 65535:
        raise OSError(errno.EINVAL, "a port is 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            # also one that needs more rights is not ours to take
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def listener(port: int) -> str:
    """Who listens on a port: ``command [pid]``, or "" where that cannot be seen (another user's process)."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and connection.pid and local and local.port == port:
                return f"{psutil.Process(connection.pid).name()} [{connection.pid}]"
    except psutil.Error:
        return ""
    return ""
