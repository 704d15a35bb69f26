"""The few words that are left of a chain of wrapped errors."""

from __future__ import annotations

import socket

import pytest

from gaudi_launch.models.hub.network import reason_of


class MaxRetryError(Exception):
    def __init__(self, reason: BaseException) -> None:
        super().__init__("HTTPConnectionPool(host='h', port=9): Max retries exceeded")
        self.reason = reason


class ReadTimeout(OSError):
    pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (
            OSError(MaxRetryError(ConnectionRefusedError(111, "Connection refused"))),
            "Connection refused",
        ),
        (
            OSError(MaxRetryError(socket.gaierror(-2, "Name or service not known"))),
            "Name or service not known",
        ),
        (OSError(MaxRetryError(ReadTimeout("read timed out"))), "timed out"),
        (ValueError("text of a library"), "ValueError"),
    ],
)
def test_reason(error: BaseException, words: str) -> None:
    assert reason_of(error) == words


def test_a_ring_of_causes_ends() -> None:
    one, two = ValueError("1"), KeyError("2")
    one.__cause__, two.__cause__ = two, one
    assert reason_of(one) == "ValueError"
