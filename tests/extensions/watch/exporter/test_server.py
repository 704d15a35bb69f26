"""The exporter's server: methods, and clients that are many or slow."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Gauge

from gaudi_launch.extensions.watch.exporter import server as exporter_server

LIMIT = 4


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(exporter_server, "_MOST_CONNECTIONS", LIMIT)
    monkeypatch.setattr(exporter_server, "_MOST_SECONDS", 0.5)
    registry = CollectorRegistry()
    Gauge("cards", "Cards", registry=registry).set(8)
    server = exporter_server.listen("127.0.0.1", 0, registry)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def ask(port: int, method: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, "/metrics")
    response = connection.getresponse()
    return response.status, response.getheader("Content-Length"), response.read()


def test_head_is_get_without_a_body(port: int) -> None:
    status, length, body = ask(port, "GET")
    assert (status, b"cards 8.0" in body) == (200, True)
    assert ask(port, "HEAD") == (200, length, b"")


def handlers() -> list[threading.Thread]:
    """Return the threads that serve a connection; socketserver names them by their function."""
    return [thread for thread in threading.enumerate() if "process_request" in thread.name]


def test_slow_clients_get_no_more_threads_than_the_limit(port: int) -> None:
    served: list[int] = []
    others = len(handlers())
    with ExitStack() as slow:
        clients = [
            slow.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)
        ]
        for _ in range(20):
            for client in clients:
                try:
                    # never the end of a request
                    client.send(b"G")
                except OSError:
                    continue
            served.append(len(handlers()))
            time.sleep(0.02)
        # each place is free again after its time, however slowly its client sends
        assert ask(port, "GET")[0] == 200
    assert max(served) - others == LIMIT


def test_a_scrape_behind_slow_clients_is_answered_before_prometheus_gives_up() -> None:
    # the time that a scrape may have to wait, and that of the largest page
    assert exporter_server._MOST_SECONDS + 1.0 < 10.0
    assert exporter_server._SILENT_SECONDS < exporter_server._MOST_SECONDS
