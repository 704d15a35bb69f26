"""Layouts, differences, and each host's part. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.registry import find
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
        with raising("cluster.heads") as error:
            choose(model, version, hosts, 8, LayoutOptions())
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
