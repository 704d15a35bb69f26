"""The exporter's HTTP server: GET and HEAD, with limits on connections and time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gaudi_launch.extensions.watch.exporter.export import PREFIX

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from prometheus_client import CollectorRegistry

# a scrape by several Prometheus servers and a person's browser; each connection has a thread
_MOST_CONNECTIONS = 32
# Prometheus gives up after 10 s by default (scrape_timeout). A page of 1,000 services takes less
# than 1 s, so a scrape that waits until slow clients are cut is still answered in time.
_MOST_SECONDS = 7.0
_SILENT_SECONDS = 3.0


class _Handler(WSGIRequestHandler):
    """Without a line per request; a client that sends nothing is dropped."""

    timeout = _SILENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per connection, and never more than the limit."""

    daemon_threads = True
    # connections that the kernel keeps until a thread takes them (listen(2))
    request_queue_size = 128

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread; above the limit it waits in the kernel's queue."""
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection and end it after its time, however slowly it sends."""
        timer = threading.Timer(_MOST_SECONDS, _cut, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over clients that went away."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def with_head(app: WSGIApplication) -> WSGIApplication:
    """Return an application that answers HEAD as GET without its body."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return app(environ, start_response)
        begun: list[Any] = []

        def begin(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            begun.extend((status, headers))
            return lambda content: None

        body = b"".join(app({**environ, "REQUEST_METHOD": "GET"}, begin))
        status, headers = begun
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return []

    return answer


def with_health(app: WSGIApplication, registry: CollectorRegistry) -> WSGIApplication:
    """Return an application whose /health is 503 where no sample is made."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/health":
            return app(environ, start_response)
        is_healthy = registry.get_sample_value(f"{PREFIX}cards_read") == 1
        start_response("200 OK" if is_healthy else "503 Service Unavailable", [])
        return []

    return answer


def listen(host: str, port: int, registry: CollectorRegistry) -> _Server:
    """Open the server.

    Raises OSError or UnicodeError for an address that cannot be listened on.
    """
    from prometheus_client import make_wsgi_app

    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    kind = type("_FamilyServer", (_Server,), {"address_family": family})
    server: _Server = kind((str(address[0]), port), _Handler)
    server.set_app(with_head(with_health(make_wsgi_app(registry), registry)))
    return server
