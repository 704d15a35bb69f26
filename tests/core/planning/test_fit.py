"""fit's rows are what a plan for so many cards says, for every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.models.card_memory import MOST_OF_A_CARD, FitRow, FitTable, fit_each
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import BLOCK
from gaudi_launch.core.planning.fit import context_of, divided, limits_of, ways_out
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import refused

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
    card = accelerators()["gaudi1"]
    with refused("fit.no_fp8", ExitCode.MACHINE, card=card.title):
        divided(chosen, Request(LLAMA), card, model, 1, "fp8")


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


FORK = registry.find("vllm-fork@1.22")


def asked(dtype: str, model: Model, cards: int = 2, **wishes: Any) -> Request:
    """Return the request that a card is divided for."""
    product = accelerators()["gaudi2"]
    request = Request(LLAMA, **wishes)
    context = context_of(FORK, request, product, model, cards=cards, dtype=dtype)
    assert context.placement == Placement(tuple(range(cards)))
    assert (context.host.product, context.host.modules) == (product.id, tuple(range(cards)))
    assert context.model == model
    assert context.request.cards == cards
    return context.request


def test_fp8_counts_as_calibrated_and_the_types_of_d_are_requested() -> None:
    model = known(LLAMA)
    fp8 = asked("fp8", model)
    assert (fp8.dtype, fp8.quant_file) == ("fp8", QuantFile("calibrated", "calibrated", "fp8_inc"))
    for dtype in ("awq", "gptq"):
        plain = asked(dtype, model)
        assert (plain.dtype, plain.quant_file) == (dtype, None), dtype
    # its own type needs no option, nor do other types
    for dtype, stored in (("awq", "awq"), ("bfloat16", None), ("mxfp4", "mxfp4")):
        plain = asked(dtype, replace(model, quantization=stored))
        assert (plain.dtype, plain.quant_file) == (None, None), dtype


def test_an_option_of_the_request_reaches_the_division() -> None:
    product, model = accelerators()["gaudi2"], known(LLAMA)
    request = Request(LLAMA, max_model_len=4096, memory_utilization="0.5")
    demand, _ = divided(FORK, request, product, model, 1, "bfloat16")
    assert (demand.max_model_len, demand.utilization) == (4096, 0.5)


def test_a_shorter_context_is_a_way_out_where_weights_and_activations_leave_room() -> None:
    product = accelerators()["gaudi2"]
    card = product.usable_bytes / 2**30
    row = FitRow(
        product.cards,
        "fp8",
        False,
        message("fit.weights"),
        weights_gib_per_card=60.0,
        activations_gib_per_card=1.0,
        longest_context=BLOCK,
    )

    def helps(**changed: Any) -> bool:
        table = FitTable((replace(row, **changed),), None)
        (way,) = ways_out(table, Model("m", "m"), product)
        return way == message("fit.way_length")

    assert helps()
    assert not helps(longest_context=BLOCK - 1)
    assert not helps(longest_context=None)
    assert not helps(weights_gib_per_card=None)
    assert not helps(activations_gib_per_card=None)
    most = MOST_OF_A_CARD * card
    assert helps(weights_gib_per_card=most - 2.0)
    assert not helps(weights_gib_per_card=most - 0.5)
