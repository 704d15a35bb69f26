"""What ``stop`` says of a service and of processes that launchers left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gaudi_launch.commands.services.stop import view as stop
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.services.run_record import RunRecord
from gaudi_launch.core.services.state.identity import Identity
from gaudi_launch.core.services.state.orphans import Orphan
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.core.services.stop import Stopped
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")

RUN = RunRecord(
    steps=12_000,
    late=30,
    busy_seconds=200.0,
    behind_seconds=3.0,
    host_ms=1.25,
    batch=64,
    time_scale=2.0,
    real_time=True,
)
DEAD = Orphan(Identity(71, 5, "b"), "vllm serve m", "/state/services/chat")
UNSURE = Orphan(
    Identity(72, 6, "b"),
    "ray::Worker",
    "/state/services/old",
    message("common.no_way", path="/state", why="Permission denied"),
)


def ended(
    *, alive: bool, left: int = 0, busy: tuple[int, ...] = (), run: RunRecord | None = None
) -> Stopped:
    service = ServiceRecord("chat", Path("/state/services/chat"), {}, alive=False)
    return Stopped(service, alive, left, (DEAD,), (), busy, run)


def test_each_ending_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    endings = (
        Stopped(ended(alive=False).service, False, 0, (), run=RUN),
        ended(alive=True),
        ended(alive=True, left=3, busy=(0, 4), run=RUN),
    )
    views(
        capsys,
        "stop",
        [partial(stop.show_ended, each) for each in endings],
        [stop.ended_to_json(each) for each in endings[1:]],
    )


def test_orphans_are_listed_with_the_reason_why_one_is_left_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = Orphan(Identity(73, 5, "b"), "sleep", "/state/services/chat")
    views(
        capsys,
        "stop-orphans",
        [
            lambda: stop.show_orphans((DEAD, DEAD)),
            lambda: stop.show_orphans(()),
            lambda: stop.show_unsure((UNSURE,)),
            lambda: stop.show_unsure(()),
        ],
        # one that did not end is not called ended
        [stop.orphans_to_json((DEAD, other), (other,), (UNSURE,))],
    )
