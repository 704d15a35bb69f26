"""The use case of `top`: what is watched, and the texts of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.extensions.watch.top import case as top
from gaudi_launch.extensions.watch.top.case import WatchRequest
from tests.support.service_record import service


def test_hosts_come_from_the_option_or_an_inventory(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text("schema: 1\nhosts: [one, {name: two, ssh: admin@two}]\n")
    assert [host.name for host in top.watched(WatchRequest(inventory=str(inventory)))] == [
        "one",
        "two",
    ]
    assert [host.name for host in top.watched(WatchRequest(hosts="a,b@c"))] == ["a", "c"]


def test_samples_repeat_and_end_with_the_reader() -> None:
    waited: list[float] = []
    samples = top.repeated(WatchRequest(machine="simulated:hls2", interval=2.0), waited.append)
    assert len(next(samples)[0].cards) == 8
    next(samples)
    assert 2.0 in waited
    samples.close()


def test_the_log_of_a_service(own_folders: Path) -> None:
    with service("mine", "-") as folder:
        with pytest.raises(LaunchError):
            top.log_lines("mine", 5)
        (folder / "engine.log").write_text("".join(f"{number}\n" for number in range(100_000)))
        assert top.log_lines("mine", 2) == ["99998", "99999"]
        (folder / "engine.log").write_text("\x1b[32mINFO\x1b[0m\tready\n")
        assert top.log_lines("mine", 2) == ["INFO    ready"]
    with pytest.raises(LaunchError):
        top.log_lines("other", 5)
