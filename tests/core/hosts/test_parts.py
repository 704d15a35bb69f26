"""Each host's part of a cluster: addresses, settings and commands. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.host.hardware import Host, Interface
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts.differences import Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import GAUDI_README, Layout
from gaudi_launch.core.hosts.parts import (
    Addresses,
    Cluster,
    ClusterEngine,
    Node,
    PlannedWhole,
    assemble,
    changes,
    merged,
    reach,
    with_own_address,
)
from gaudi_launch.core.planning.engine import Spread
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Overridden, Plan, Setting
from tests.support.scripted_hosts import GONE, WHY, failed, member

ARGV = ("python", "-m", "e", "--max-num-seqs", "64", "--port", "1")
LAYOUT = Layout(4, 1, 1, 0, 2, 2, WHY, "origin", (message("cluster.data_router", data=2),))


def option(name: str, value: str, source: Any = "computed", **more: Any) -> Setting:
    return Setting(name, value, "option", source, WHY, **more)


def variable(name: str, value: str, source: Any = "computed") -> Setting:
    return Setting(name, value, "env", source, WHY)


def plan(*settings: Setting, user: tuple[str, ...] = (), **env: str) -> Plan:
    command = Command((*ARGV, *user), env, cpus=(1, 2), memory_node=1, user=user)
    identity = EngineIdentity("vllm-fork", "1.22")
    return Plan(identity, {"path": "/m"}, Placement((0, 1)), settings, command, "http://x:1")


class Spreading:
    """Stand in for an engine: notes how it is spread, and answers with one setting."""

    def __init__(self, *settings: Setting) -> None:
        self.settings = settings
        self.asked: list[Spread] = []

    def spread(self, spread: Spread) -> tuple[Setting, ...]:
        self.asked.append(spread)
        return self.settings


def whole(made: Plan, *settings: Setting, own: frozenset[str] = frozenset()) -> Any:
    return PlannedWhole(made, Spreading(*settings), own)  # type: ignore[arg-type]


def computed(name: str, value: str, id: str, origin: str, kind: Any, **values: Any) -> Setting:
    return Setting(name, value, kind, "computed", message(id, **values), origin)


TENSOR = computed("--tensor-parallel-size", "4", "cluster.why_layout", "origin", "option")
RAY = computed("--distributed-executor-backend", "ray", "cluster.why_ray", "origin", "option")


def test_what_several_hosts_change() -> None:
    made = whole(plan(), variable("OWN", "1"))
    found = changes(LAYOUT, made, ray_address="10.0.0.1:8850", source="/src")
    address = computed(
        "RAY_ADDRESS",
        "10.0.0.1:8850",
        "cluster.why_ray_address",
        "docs: ray.init, RAY_ADDRESS",
        "env",
    )
    assert found == (TENSOR, RAY, address, variable("OWN", "1"))
    assert made.engine.asked == [Spread((), 4, True, frozenset(), "/src", False)]
    # the address is not known yet
    assert changes(LAYOUT, made) == (TENSOR, RAY, variable("OWN", "1"))


def test_stages_share_the_sequences() -> None:
    staged = replace(LAYOUT, tensor=2, pipeline=2, hosts=1, cards_per_host=4)
    cache = computed(
        "PT_HPUGRAPH_DISABLE_TENSOR_CACHE", "0", "cluster.why_tensor_cache", GAUDI_README, "env"
    )
    expected = (
        replace(TENSOR, value="2"),
        computed("--pipeline-parallel-size", "2", "cluster.why_layout", "origin", "option"),
        cache,
        computed("--max-num-seqs", "32", "cluster.why_seqs", GAUDI_README, "option", stages=2),
    )
    assert changes(staged, whole(plan())) == expected
    one = plan()
    one = replace(one, command=replace(one.command, argv=("python", "--max-num-seqs", "1")))
    assert changes(staged, whole(one))[3].value == "1"
    none = replace(one, command=replace(one.command, argv=("python", "--max-num-seqs", "auto")))
    assert changes(staged, whole(none)) == expected[:3]


def test_settings_of_a_single_host_are_removed() -> None:
    made = plan(
        variable("HABANA_VISIBLE_MODULES", "0"),
        option("--tensor_parallel_size", "2"),
        option("--max-num-seqs", "64", "flag"),
        variable("KEPT", "1"),
        user=("--max-num-seqs", "64"),
    )
    changed = (TENSOR, option("--max-num-seqs", "32"), RAY)
    assert merged(made, changed) == (
        replace(TENSOR, name="--tensor_parallel_size"),
        option("--max-num-seqs", "64", "flag", beaten=(Overridden("32", "computed"),)),
        variable("KEPT", "1"),
        RAY,
    )


def host(*addresses: str, name: str = "ens1", **changes: Any) -> Host:
    bare = replace(make("hls2"), interfaces=(Interface(name, True, addresses),), origin="")
    return replace(bare, **changes)


def seen(name: str, *addresses: str, **changes: Any) -> Seen:
    return Seen(member(name), host(*addresses), **changes)


AB = (seen("a", "10.0.0.1"), seen("b", "10.0.0.2"))


def node(name: str, address: str, modules: tuple[int, ...], **env: str) -> Node:
    visible = ",".join(map(str, modules))
    own = {
        "VLLM_HOST_IP": address,
        "GLOO_SOCKET_IFNAME": "ens1",
        "HCCL_SOCKET_IFNAME": "ens1",
        "HABANA_VISIBLE_MODULES": visible,
    }
    return Node(member(name), address, "ens1", modules, {**env, **own})


def test_one_engine_over_two_hosts() -> None:
    made = plan(KEPT="1", PT_HPU_RECIPE_CACHE_CONFIG="/recipes,False,1024")
    found = assemble("c", LAYOUT, whole(made), AB, Addresses(8000))
    env = {
        "KEPT": "1",
        "PT_HPU_RECIPE_CACHE_CONFIG": "/recipes,False,1024",
        "RAY_ADDRESS": "10.0.0.1:8850",
    }
    nodes = (node("a", "10.0.0.1", (0, 1), **env), node("b", "10.0.0.2", (0, 1), **env))
    argv = (
        "python3", "-m", "e", "--max-num-seqs", "64", "--port", "8000", "--tensor-parallel-size",
        "4", "--distributed-executor-backend", "ray", "--host", "10.0.0.1",
    )  # fmt: skip
    address = computed(
        "RAY_ADDRESS",
        "10.0.0.1:8850",
        "cluster.why_ray_address",
        "docs: ray.init, RAY_ADDRESS",
        "env",
    )
    engine = ClusterEngine(nodes, Command(argv, nodes[0].env), "http://10.0.0.1:8000")
    assert found == Cluster(
        name="c",
        layout=LAYOUT,
        engines=(engine,),
        settings=(TENSOR, RAY, address),
        plan=made,
        model="/m",
        recipes="/recipes",
        ray_port=8850,
        warnings=(message("cluster.data_router", data=2), message("cluster.open_ray")),
    )
    assert found.nodes == nodes
    assert found.ray_address(engine) == "10.0.0.1:8850"


@pytest.mark.parametrize(
    ("listen", "url"), [("0.0.0.0", "http://10.0.0.1:8000"), ("fd00::9", "http://[fd00::9]:8000")]
)
def test_the_address_of_the_service(listen: str, url: str) -> None:
    found = assemble("c", LAYOUT, whole(plan()), AB, Addresses(8000, listen=listen))
    assert found.engines[0].url == url


def test_the_ports_and_the_interface_of_the_user() -> None:
    interfaces = (Interface("ens1", True, ("10.0.0.1",)), Interface("ib0", True, ("10.9.0.1",)))
    two = replace(make("hls2"), interfaces=interfaces)
    hosts = (Seen(member("a"), two), Seen(replace(member("b"), address="10.9.0.2")))
    addresses = Addresses(8000, ray_port=7000, interface="ib0")
    found = assemble("c", LAYOUT, whole(plan()), hosts, addresses)
    assert [(each.address, each.interface) for each in found.nodes] == [
        ("10.9.0.1", "ib0"),
        ("10.9.0.2", "ib0"),
    ]
    assert found.nodes[0].env["RAY_ADDRESS"] == "10.9.0.1:7000"
    # a host whose cards are unknown has the first
    assert found.nodes[1].modules == (0, 1)


@pytest.mark.parametrize(
    ("hosts", "addresses", "failure"),
    [
        (AB, Addresses(8850), ("cluster.one_port", ExitCode.USAGE, {"port": 8850})),
        (
            (AB[0], seen("b", "10.0.0.1")),
            Addresses(8000),
            ("cluster.twice", ExitCode.USAGE, {"field": "address", "found": "10.0.0.1"}),
        ),
        (
            (AB[0], seen("b")),
            Addresses(8000),
            ("cluster.unreached", ExitCode.USAGE, {"host": "b", "known": "-"}),
        ),
        (
            (AB[0], Seen(member("b"), trouble=GONE)),
            Addresses(8000),
            (GONE.id, ExitCode.MACHINE, GONE.values),
        ),
    ],
)
def test_hosts_that_cannot_be_joined(
    hosts: tuple[Seen, ...], addresses: Addresses, failure: tuple[object, ...]
) -> None:
    found = failed(lambda: assemble("c", LAYOUT, whole(plan()), hosts, addresses))
    assert found == (*failure, None)


def test_a_host_without_free_cards_is_named() -> None:
    busy = replace(AB[1], host=replace(host("10.0.0.2"), cards=make("hls2").cards[:1]))
    id, code, values, _ = failed(
        lambda: assemble("c", LAYOUT, whole(plan()), (AB[0], busy), Addresses(8000))
    )
    assert (id, code, values["host"]) == ("cluster.no_place", ExitCode.MACHINE, "b")
    assert values["why"]


def warned(made: Any, hosts: tuple[Seen, ...] = AB) -> list[Message]:
    return [*assemble("c", replace(LAYOUT, warnings=()), made, hosts, Addresses(1)).warnings][1:]


def test_warnings_about_settings() -> None:
    fp8 = variable("VLLM_REQUANT_FP8_INC", "1")
    assert warned(whole(plan(fp8))) == [message("cluster.no_quant")]
    assert warned(whole(plan(variable("VLLM_REQUANT_FP8_INC", "0")))) == []
    for name in ("QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX", "VLLM_BUCKETING_FROM_FILE"):
        relative = message("cluster.relative", name=name, path="x/y")
        assert warned(whole(plan(variable(name, "x/y")))) == [relative]
        assert warned(whole(plan(variable(name, "/x/y")))) == []
        assert warned(whole(plan(variable(name, "")))) == []
    assert warned(whole(plan(fp8, variable("QUANT_CONFIG", "/x")))) == []


def test_simulated_machines_have_no_address_of_their_own() -> None:
    simulated = f"{SIMULATED}hls2"
    hosts = (
        seen("a", "10.0.0.1"),
        replace(AB[1], host=host("10.0.0.2", origin=simulated)),
        replace(AB[1], member=member("c"), host=host("10.0.0.3", origin=simulated)),
        Seen(replace(member("d"), address="10.0.0.4"), host("10.0.0.4", origin=simulated)),
        Seen(Member("e", "me@10.0.0.5"), host("10.0.0.5", origin=simulated)),
    )
    layout = replace(LAYOUT, tensor=10, hosts=5, warnings=())
    found = assemble("c", layout, whole(plan()), hosts, Addresses(1))
    assert found.warnings == (message("cluster.made_up", hosts="b, c"), message("cluster.open_ray"))


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (("/src", "/src"), "/src"),
        (("/src", "/other"), None),
        (("src", "src"), None),
        (("/x/site-packages/y", "/x/site-packages/y"), None),
        ((None, None), None),
        (("/src", None), "/src"),
    ],
)
def test_the_checkout_of_the_engine(sources: tuple[str | None, ...], found: str | None) -> None:
    hosts = tuple(
        replace(each, installed=None if source is None else Installed("p", "e", {}, {
            "source": source,
        }))
        for each, source in zip(AB, sources, strict=True)
    )  # fmt: skip
    made = whole(plan())
    assemble("c", LAYOUT, made, hosts, Addresses(1))
    assert made.engine.asked[0].source == found


def interfaces(*names: str) -> Host:
    return Host(
        interfaces=tuple(
            Interface(name, True, (f"10.0.0.{number}",)) for number, name in enumerate(names, 1)
        )
    )


def test_hosts_whose_address_is_unknown() -> None:
    both = {"host": "a", "known": "eth0, eth1"}
    unsure = interfaces("eth0", "eth1")
    unreached = ("cluster.unreached", ExitCode.USAGE, both, None)
    assert failed(lambda: reach(member("a"), unsure)) == unreached
    away = replace(member("a"), address="10.9.9.9")
    assert failed(lambda: reach(away, unsure)) == unreached
    named = replace(member("a"), interface="ib0")
    values = {"host": "a", "found": "ib0", "known": "eth0, eth1"}
    assert failed(lambda: reach(named, unsure, "eth0")) == (
        "cluster.no_interface", ExitCode.USAGE, values, None,
    )  # fmt: skip
    # a host of which nothing is known
    none = {"host": "a", "known": "-"}
    assert failed(lambda: reach(named, None)) == ("cluster.unreached", ExitCode.USAGE, none, None)
    assert failed(lambda: reach(named, Host())) == ("cluster.unreached", ExitCode.USAGE, none, None)


def test_addresses_that_others_cannot_use() -> None:
    mixed = Interface("eth0", True, ("what", "127.0.0.1", "fe80::1", "fd00::1", "10.0.0.1"))
    assert reach(member("a"), Host(interfaces=(mixed,))) == ("10.0.0.1", "eth0")
    local = Interface("eth1", True, ("127.0.0.1", "fe80::1"))
    assert reach(member("a"), Host(interfaces=(local, mixed))) == ("10.0.0.1", "eth0")


def test_simulated_machines_are_told_apart() -> None:
    made = Host(
        interfaces=(
            Interface("eth0", True, ("10.0.0.1", "fd00::1"), default_route=True),
            Interface("ib0", True, ("10.9.0.1",)),
            Interface("lo", True, ("127.0.0.1",)),
        )
    )

    def addresses(one: Member, number: int) -> list[tuple[str, ...]]:
        return [each.addresses for each in with_own_address(one, made, number).interfaces]

    moved = [("10.0.0.3", "fd00::3"), ("10.9.0.3",), ("127.0.0.1",)]
    assert addresses(member("a"), 2) == moved
    given = [("192.168.0.7",), ("10.9.0.3",), ("127.0.0.1",)]
    assert addresses(Member("a", "me@192.168.0.7"), 2) == given
    assert addresses(Member("a", "me@10.1.1.1", address="192.168.0.7"), 2) == given
    assert addresses(Member("a", "a", address="fd00:0::7"), 2)[0] == ("fd00::7",)
