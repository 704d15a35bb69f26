"""The row of a request that failed: whose fault it is."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.bench.check.rows import failed
from gaudi_launch.extensions.bench.client import ServerError


@pytest.mark.parametrize(
    ("error", "sentence", "fault"),
    [
        (ServerError("connect", "why"), message("measure.fail_connect", why="why"), "way"),
        (ServerError("status", "why", 401), message("measure.fail_key", status=401), "way"),
        (ServerError("status", "why", 403), message("measure.fail_key", status=403), "way"),
        (
            ServerError("status", "why", 404),
            message("measure.fail_status", status=404, why="why"),
            "way",
        ),
        (
            ServerError("status", "why", 500),
            message("measure.fail_status", status=500, why="why"),
            "engine",
        ),
        (ServerError("protocol", "why"), message("measure.fail_protocol", why="why"), "engine"),
    ],
)
def test_the_row_of_a_failed_request(error: ServerError, sentence: Message, fault: str) -> None:
    values = {"kind": error.kind, "status": error.status, "detail": "why"}
    assert vars(failed("models", error)) == {
        "name": "models",
        "verdict": "fail",
        "sentence": sentence,
        "seconds": 0.0,
        "values": values,
        "fault": fault,
    }
