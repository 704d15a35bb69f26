"""Layouts, differences, and each host's part. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.hardware import Host, Interface
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts.differences import FolderFacts, HostDifference, Seen, compare
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import Layout, LayoutOptions, choose
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from tests.support.refusals import raising

R1, V22 = find("deepseek_r1"), find("vllm-fork@1.22")
DEEPSEEK = known_model("deepseek-ai/DeepSeek-R1", False)
LLAMA_405B = Model("m", "m", heads=128, kv_heads=8, layers=126, moe=False)
QWEN = Model("m", "m", heads=28, kv_heads=4, layers=28, moe=False)


def sizes(layout: Layout) -> tuple[int, int, int, int, bool]:
    return layout.tensor, layout.pipeline, layout.data, layout.expert, layout.ray


def test_the_documented_layouts() -> None:
    # set_head_node.sh: TP 16, VLLM_EP_SIZE 16; README_GAUDI.md: Llama-3.1-405B with TP 16
    assert sizes(choose(DEEPSEEK, R1, 2, 8, LayoutOptions())) == (16, 1, 1, 16, True)
    assert sizes(choose(LLAMA_405B, V22, 2, 8, LayoutOptions())) == (16, 1, 1, 0, True)
    # README_GAUDI.md: or tensor 8 and two stages
    assert sizes(choose(LLAMA_405B, V22, 2, 8, LayoutOptions(pipeline=2))) == (8, 2, 1, 0, True)


def test_heads_that_do_not_divide_make_stages() -> None:
    assert sizes(choose(QWEN, V22, 2, 4, LayoutOptions())) == (4, 2, 1, 0, True)
    for model, version, hosts, would in ((QWEN, V22, 2, (4, 4)), (DEEPSEEK, R1, 3, (8, 3))):
        with pytest.raises(LaunchError) as error:
            choose(model, version, hosts, 8, LayoutOptions())
        assert error.value.id == "cluster.heads"
        assert "--tensor-parallel {} --pipeline-parallel {}".format(*would) in str(error.value)
        # and so it can
        assert sizes(choose(model, version, hosts, 8, LayoutOptions(*would)))[:2] == would
    with raising("cluster.heads"):
        choose(QWEN, V22, 2, 4, LayoutOptions(tensor=8))
    with raising("cluster.layers"):
        choose(replace(QWEN, layers=2), V22, 4, 4, LayoutOptions())


def test_engines_side_by_side() -> None:
    assert sizes(choose(LLAMA_405B, V22, 2, 8, LayoutOptions(data=2))) == (8, 1, 2, 0, False)
    four = choose(DEEPSEEK, R1, 4, 8, LayoutOptions(data=2))
    assert (sizes(four), [w.id for w in four.warnings]) == (
        (16, 1, 2, 16, True),
        ["cluster.data_router"],
    )
    with raising("cluster.data"):
        choose(DEEPSEEK, R1, 3, 8, LayoutOptions(data=2))


def seen(name: str, machine: str = "hls2", **changes: object) -> Seen:
    facts = {"commit": "016b6bd20", "extension_commit": "0bc6b42"}
    installed = Installed("python3", "deepseek_r1", {"vllm": "0.8.5", "ray": "2.43.0"}, facts)
    one = Seen(
        Member(name, name),
        make(machine),
        installed=installed,
        python="3.10.12",
        clock=0.0,
        clock_within=0.1,
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def test_equal_hosts_do_not_differ() -> None:
    assert compare([seen("a"), seen("b")]) == ()
    assert compare([seen("a")]) == ()


def test_what_must_not_differ() -> None:
    one = seen("a")
    assert one.installed is not None and one.host is not None
    other = Installed(
        "python3", "deepseek_r1", {"vllm": "0.8.5", "ray": "2.40.0"}, {"commit": "abc"}
    )
    host = replace(
        one.host, driver_version="1.20.1-aaa", kernel="6.8", interfaces=(Interface("eth0", True),)
    )
    found = compare([one, seen("b", installed=other, host=host, python="3.11.2")])
    assert [(d.level, d.what) for d in found] == [
        ("fail", "driver"),
        ("fail", "commit"),
        ("fail", "ray"),
        ("fail", "python"),
        ("note", "kernel"),
        ("note", "interfaces"),
    ]
    assert found[2] == HostDifference(
        "fail", "ray", {"a": "ray 2.43.0", "b": "ray 2.40.0"}, message("cluster.differs_ray")
    )


def test_hosts_may_have_more_cards_than_are_asked_for() -> None:
    hosts = [seen("a", "gaudi2e-8"), seen("b", "gaudi2e-4")]
    assert ("fail", "cards") in [(d.level, d.what) for d in compare(hosts)]
    assert ("note", "cards") in [(d.level, d.what) for d in compare(hosts, cards=4)]


def test_clocks_are_apart_only_when_that_is_certain() -> None:
    assert [d.what for d in compare([seen("a"), seen("b", clock=3.0)])] == ["clock"]
    # 3 seconds, known to +- 2: may be one
    assert compare([seen("a"), seen("b", clock=3.0, clock_within=2.0)]) == ()
    assert compare([seen("a"), seen("b", clock=None)]) == ()


def host(*interfaces: Interface) -> Host:
    return Host(interfaces=interfaces)


def test_folders_compare_by_value() -> None:
    assert FolderFacts(3, 10) == FolderFacts(3, 10) != FolderFacts(3, 11)


def choice(model: Model, hosts: int, cards: int, **asked: int) -> Layout:
    return choose(model, V22, hosts, cards, LayoutOptions(**asked))


def layout_error(model: Model, hosts: int, cards: int, **asked: int) -> tuple[object, ...]:
    with pytest.raises(LaunchError) as error:
        choice(model, hosts, cards, **asked)
    return error.value.id, int(error.value.exit_code), error.value.text.values


def test_layouts_that_are_impossible() -> None:
    assert layout_error(QWEN, 3, 8, data=2) == ("cluster.data", 2, {"data": 2, "hosts": 3})
    sizes = {"tensor": 3, "pipeline": 2, "data": 1, "total": 8}
    assert layout_error(QWEN, 2, 4, tensor=3, pipeline=2) == ("cluster.sizes", 2, sizes)
    heads = {
        "heads": 28, "kv_heads": 4, "tensor": 16,
        "would": "--tensor-parallel 4 --pipeline-parallel 4",
    }  # fmt: skip
    assert layout_error(QWEN, 2, 8, tensor=16) == ("cluster.heads", 5, heads)
    odd = Model("m", "m", heads=7, layers=28)
    heads = {
        "heads": 7, "kv_heads": "-", "tensor": 8,
        "would": "--tensor-parallel 1 --pipeline-parallel 8",
    }  # fmt: skip
    assert layout_error(odd, 1, 8) == ("cluster.heads", 5, heads)
    layers = {"layers": 3, "pipeline": 4}
    assert layout_error(replace(QWEN, layers=3), 4, 4) == ("cluster.layers", 5, layers)
    assert choice(replace(QWEN, layers=4), 4, 4).pipeline == 4
