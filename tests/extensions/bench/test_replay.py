"""A workload that is sent at its times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaudi_launch.extensions.bench import replay, server
from gaudi_launch.extensions.bench.client import Client
from gaudi_launch.extensions.bench.replay import Way
from gaudi_launch.extensions.bench.run_file import BenchWorkload, WorkloadRequest


def test_a_fault_of_our_own_is_not_a_failed_request() -> None:
    unknown: Any = "no form of a request"
    ruler = server.Ruler(2.0, 4.0, True)
    way = Way(server.ServerFacts("m", ("m",)), unknown, ruler, True, 3)
    workload = BenchWorkload((WorkloadRequest(0.0, 24, 5),), "own", None, "t")

    async def replayed() -> None:
        await replay.replay(Client("http://a:1"), workload, way, lambda _: None, asyncio.Event())

    with pytest.raises(KeyError):
        asyncio.run(replayed())
