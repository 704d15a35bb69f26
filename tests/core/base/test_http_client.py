"""One HTTP client: total deadline, size limit, and no proxy in front of this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import requests

from gaudi_launch.core.base import http_client

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
Answer = Callable[[socket.socket], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server that lets ``answer`` write to each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        answer(connection)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def sends(content: bytes) -> Answer:
    return lambda connection: connection.sendall(content)


def drips(content: bytes, at_once: bytes = b"") -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(at_once)
        for number in range(len(content)):
            connection.sendall(content[number : number + 1])
            time.sleep(0.2)

    return answer


def test_the_body_of_an_answer() -> None:
    with server(sends(_OK % 5 + b"hello")) as url:
        assert http_client.get(url, seconds=30, most_bytes=5) == b"hello"
        assert http_client.head(url, seconds=30) == 200


@pytest.mark.parametrize("what", ["head", "body"])
def test_a_server_that_drips_bytes_cannot_hold_it(what: str) -> None:
    ready = _OK % 1000
    with server(drips(ready) if what == "head" else drips(b"x" * 1000, ready)) as url:
        begin = time.monotonic()
        with pytest.raises(requests.Timeout):
            http_client.get(url, seconds=1, most_bytes=10_000)
        assert 0.9 <= time.monotonic() - begin < 10


def test_an_answer_above_the_limit_is_an_error() -> None:
    with (
        server(sends(_OK % 6 + b"hello!")) as url,
        pytest.raises(requests.RequestException, match="more than 5"),
    ):
        http_client.get(url, seconds=30, most_bytes=5)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:8000/metrics", True),
        ("http://127.0.0.9", True),
        ("http://[::1]:80/", True),
        ("http://gaudi-1:8000", False),
        ("http://10.0.0.1", False),
        ("http://[", False),
    ],
)
def test_addresses_of_this_machine(url: str, loopback: bool) -> None:
    assert http_client.names_this_machine(url) is loopback


def test_a_request_to_another_machine_passes_the_proxy_and_one_to_this_machine_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    with server(sends(_OK % 0)) as url, server(sends(busy)) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        assert http_client.head(url, seconds=30) == 200
        assert http_client.head("http://gaudi.invalid/", seconds=30) == 503


def test_a_request_that_takes_too_long_does_not_keep_the_program() -> None:
    ended = threading.Event()
    before = set(threading.enumerate())
    try:
        with pytest.raises(requests.Timeout, match="timed out"):
            http_client._within(0.05, ended.wait)
        (left,) = [each for each in threading.enumerate() if each not in before]
        assert (left.name, left.daemon) == ("http", True)
    finally:
        ended.set()
