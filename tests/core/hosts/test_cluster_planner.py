"""One engine planned over hosts whose facts are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts import cluster_planner
from gaudi_launch.core.hosts.cluster_planner import plan_cluster
from gaudi_launch.core.hosts.differences import Seen
from gaudi_launch.core.hosts.layout import LayoutOptions
from gaudi_launch.core.hosts.parts import Cluster
from gaudi_launch.core.planning.memory import memory_for
from gaudi_launch.core.planning.request import Request
from tests.support.scripted_hosts import GONE, failed, member

HOST = make("hls2")
REQUEST = Request("Qwen/Qwen2-72B-Instruct", engine="vllm-fork@1.22")


def seen(name: str, cards: int = 8) -> Seen:
    number = "ab".index(name) + 1
    (first, *_) = HOST.interfaces
    interface = replace(first, addresses=(f"10.0.0.{number}",))
    host = replace(HOST, cards=HOST.cards[:cards], interfaces=(interface,), origin="")
    return Seen(member(name), host)


AB = (seen("a"), seen("b"))
UNKNOWN = Seen(member("b"), trouble=GONE)


def planned(
    request: Request = REQUEST, hosts: tuple[Seen, ...] = AB, ray_port: int | None = None
) -> Cluster:
    return plan_cluster(request, hosts, LayoutOptions(), "c", ray_port, None)


def test_a_cache_that_the_user_named_is_used() -> None:
    found = planned(replace(REQUEST, cache_dir="/shared/recipes"))
    value = found.engines[0].command.env["PT_HPU_RECIPE_CACHE_CONFIG"]
    assert value.startswith("/shared/recipes")
    assert found.recipes is not None and found.recipes.startswith("/shared/recipes")


def refusal(
    request: Request = REQUEST, hosts: tuple[Seen, ...] = AB
) -> tuple[str, ExitCode, object]:
    id, code, values, _ = failed(lambda: planned(request, hosts))
    return id, code, values


@pytest.mark.parametrize(
    ("request_", "hosts", "expected"),
    [
        (
            replace(REQUEST, cards=8),
            (seen("a"), seen("b", 7)),
            ("cluster.few_cards", ExitCode.MACHINE, {"host": "b", "found": 7, "wanted": 8}),
        ),
        (
            REQUEST,
            (seen("a"), seen("b", 0)),
            ("cluster.few_cards", ExitCode.MACHINE, {"host": "b", "found": 0, "wanted": 1}),
        ),
        (
            REQUEST,
            (Seen(member("a")), Seen(member("b"))),
            ("cluster.few_cards", ExitCode.MACHINE, {"host": "a", "found": 0, "wanted": 1}),
        ),
        (REQUEST, (Seen(member("a")), UNKNOWN), (GONE.id, ExitCode.MACHINE, GONE.values)),
        (
            REQUEST,
            (seen("a"), seen("b", 7)),
            ("cluster.uneven", ExitCode.MACHINE, {"counts": "a: 8; b: 7", "cards": 7}),
        ),
        (
            replace(REQUEST, engine="vllm-gaudi"),
            AB,
            ("cluster.unvalidated", ExitCode.USAGE, {"engine": "vllm-gaudi"}),
        ),
        (
            replace(REQUEST, engine="cpu"),
            AB,
            ("cluster.no_ray", ExitCode.USAGE, {"engine": "cpu", "hosts": 2}),
        ),
    ],
)
def test_hosts_and_engines_that_cannot(
    request_: Request, hosts: tuple[Seen, ...], expected: object
) -> None:
    assert refusal(request_, hosts) == expected


def test_an_engine_of_one_host_names_the_others() -> None:
    def over(one: Any) -> bool:
        return one.over_hosts is not None

    known = ", ".join(registry.families(over))
    expected = ("cluster.no_engine", ExitCode.USAGE, {"engine": "simulated", "known": known})
    assert refusal(replace(REQUEST, engine="simulated")) == expected
    assert known


def test_heads_that_do_not_divide_are_the_reason_where_hosts_are_alike() -> None:
    """And where the user gave the number of cards."""
    for request, hosts in (
        (REQUEST, (seen("a", 7), seen("b", 7))),
        (replace(REQUEST, cards=7), (seen("a"), seen("b", 7))),
    ):
        assert refusal(request, hosts)[0] == "cluster.heads"


def test_a_model_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def tight(*words: Any) -> object:
        return replace(memory_for(*words), fits=False, message=GONE, remedies=(GONE, GONE))

    monkeypatch.setattr(cluster_planner, "memory_for", tight)
    why = GONE.render()
    values = {"cards": 16, "why": why, "would": f"{why}, {why}"}
    assert refusal() == ("fit.plan_refused", ExitCode.MACHINE, values)
    assert planned(replace(REQUEST, force=True)).layout.tensor == 16
