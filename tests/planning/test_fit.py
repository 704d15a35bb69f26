"""fit's rows are what a plan for so many cards says, for every engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.engines import registry
from gaudi_launch.errors import LaunchError
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from gaudi_launch.models.card_memory import FitRow, FitTable, fit_each
from gaudi_launch.models.model import Model
from gaudi_launch.models.sizing import BLOCK
from gaudi_launch.planning.fit import divided, limits_of, ways_out
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def known(name: str) -> Model:
    return known_model(name, must_exist=False)


@pytest.mark.parametrize(
    ("engine", "name", "cards", "box", "more"),
    [
        ("vllm-fork@1.21", LLAMA, 1, "hls2", {}),
        ("vllm-fork@1.21", "Qwen/QwQ-32B", 8, "hls2", {"max_model_len": 40960, "max_num_seqs": 24}),
        ("vllm-fork@1.22", "mistralai/Mixtral-8x7B-Instruct-v0.1", 2, "gaudi3-oam", {}),
        (
            "vllm-fork@1.22",
            LLAMA,
            1,
            "hls2",
            {"input_range": (800, 4096), "output_range": (800, 2048)},
        ),
        ("deepseek_r1", "deepseek-ai/DeepSeek-R1-0528", 8, "hls2", {}),
        ("deepseek_r1", "deepseek-ai/DeepSeek-R1-0528", 8, "gaudi2e-8", {"max_model_len": 32768}),
        ("vllm-gaudi", LLAMA, 1, "hls2", {}),
        ("vllm-gaudi", "Qwen/Qwen2-72B-Instruct", 4, "gaudi3-pcie", {"max_model_len": 8192}),
        ("tgi", LLAMA, 1, "hls2", {}),
        ("tgi@3.2.3", LLAMA, 8, "gaudi3-oam", {}),
    ],
)
def test_a_row_is_what_the_plan_says(
    engine: str, name: str, cards: int, box: str, more: dict[str, int | tuple[int, int]]
) -> None:
    model, chosen, host = known(name), registry.find(engine), make(box)
    product = accelerators()[host.product or ""]
    request = Request(name, trust_remote_code=True, files_dir="/buckets", **more)  # type: ignore[arg-type]
    usable = (product.memory_usable_mib or product.memory_total_mib) << 20
    dtype = model.quantization or "bfloat16"
    table = fit_each(
        model,
        usable,
        [cards],
        [dtype],
        lambda n, kind: divided(chosen, request, product, model, n, kind),
    )
    row = table.rows[0]
    plan = make_plan(replace(request, cards=cards), host, model, chosen)
    shown = {
        "weights": row.weights_gib_per_card,
        "activations": row.activations_gib_per_card,
        "graphs": row.graphs_gib_per_card,
        "kv": row.kv_gib_per_card,
    }
    assert {part: round(value or 0.0, 2) for part, value in shown.items()} == {
        part: plan.memory[part] for part in shown
    }
    assert row.kv_blocks == plan.num_blocks
    length = limits_of(chosen, request, model).max_model_len
    assert row.concurrency == pytest.approx((plan.num_blocks or 0) * BLOCK / length)


def test_what_an_engine_cannot_do_is_a_reason() -> None:
    # TGI divides kv heads and never replicates them
    model, chosen = replace(known(LLAMA), kv_heads=2), registry.find("tgi")
    product, request = accelerators()["gaudi2"], Request(LLAMA)
    with pytest.raises(LaunchError) as caught:
        divided(chosen, request, product, model, 4, "bfloat16")
    table = fit_each(
        model,
        1 << 36,
        [2, 4],
        ["bfloat16"],
        lambda n, kind: divided(chosen, request, product, model, n, kind),
    )
    assert [(row.n, row.fits, row.reason.id) for row in table.rows] == [
        (2, True, "fit.fits"),
        (4, False, caught.value.id),
    ]


def test_the_first_gaudi_has_no_eight_bit_floats() -> None:
    model, chosen = known(LLAMA), registry.find("vllm-fork@1.22")
    with pytest.raises(LaunchError) as caught:
        divided(chosen, Request(LLAMA), accelerators()["gaudi1"], model, 1, "fp8")
    assert caught.value.id == "fit.no_fp8" and "Gaudi" in str(caught.value)


def test_nothing_is_left_for_fp8_weights_on_all_cards() -> None:
    product, model = accelerators()["gaudi2"], Model(path="m", name="m", quantization="fp8")
    row = FitRow(
        8,
        "fp8",
        False,
        message("fit.weights"),
        weights_gib_per_card=120.0,
        activations_gib_per_card=1.0,
    )
    assert [way.id for way in ways_out(FitTable((row,), None), model, product)] == [
        "fit.would_nothing"
    ]
    few = replace(row, n=4)
    assert [way.id for way in ways_out(FitTable((few,), None), model, product)] == ["fit.way_cards"]
    plain = replace(row, dtype="bfloat16")
    other = replace(model, quantization=None)
    assert [way.id for way in ways_out(FitTable((plain,), None), other, product)] == ["fit.way_fp8"]
    short = replace(row, weights_gib_per_card=60.0, longest_context=1024)
    assert [way.id for way in ways_out(FitTable((short,), None), model, product)] == [
        "fit.way_length"
    ]
