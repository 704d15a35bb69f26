"""The formula of a step, and how loads are made of steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.parameter_count import parameters_of
from gaudi_launch.core.predict.evidence import Query, distance, evidence_for
from gaudi_launch.core.predict.learned import values
from gaudi_launch.core.predict.loads import Lengths, closed_loop, steps
from gaudi_launch.core.predict.published import figures, scored, shapes
from gaudi_launch.core.predict.shape import shape_of
from gaudi_launch.core.predict.step_model import Engine, Setup, amounts_of

ONE = Setup("gaudi3", 1, "bf16", 2.0, 2.0, "static")
LLAMA = shapes()["Llama-3.1-8B"]
MIXTRAL = shapes()["Mixtral-8x7B"]

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "vocab_size": 129280,
}


def test_more_context_costs_reading_it() -> None:
    model = steps(ONE, LLAMA, values())
    more = model.decode(8, 2000).total - model.decode(8, 1000).total
    assert more == pytest.approx(8 * 1000 * 131072 / (3.67e12 * values()["read.gaudi3"]))


def test_one_card_has_no_links() -> None:
    assert steps(ONE, LLAMA, values()).decode(8, 1000).links == 0


def test_a_link_carries_its_part_of_two_all_reduces_a_layer() -> None:
    def link(cards: int, hosts: int = 1) -> float:
        return float(amounts_of(replace(ONE, cards=cards, hosts=hosts), LLAMA).link)

    # two all-reduces, each sends the hidden values (2 bytes) twice
    sent = 2 * 2 * 2 * LLAMA.hidden * LLAMA.layers
    assert [link(cards) for cards in (1, 2, 8)] == [0.0, sent / 2, sent / 8]
    assert link(16, hosts=2) == pytest.approx(sent * 1.5 * 2 / 16)


def test_two_cards_have_one_link_and_eight_have_seven() -> None:
    two = steps(replace(ONE, cards=2), LLAMA, values())
    eight = steps(replace(ONE, cards=8), LLAMA, values())

    def of_bytes(model: object, tokens: int) -> float:
        prefill = model.prefill  # type: ignore[attr-defined]
        return float(prefill(1, tokens).links - prefill(1, tokens - 1).links)

    assert of_bytes(two, 65536) / of_bytes(eight, 65536) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(("engine", "rounds"), [("static", 2.0), ("v1", 1.0)])
def test_an_all_reduce_of_a_static_batch_has_a_round_for_each_doubling_of_the_cards(
    engine: Engine, rounds: float
) -> None:
    # no bytes and no launch: the waits alone
    own = {**values(), "pair.gaudi3": 1e30, "launch.gaudi3": 0.0}
    two, four = (
        steps(replace(ONE, cards=cards, engine=engine), LLAMA, own).decode(1, 0).links
        for cards in (2, 4)
    )
    assert four == pytest.approx(rounds * two)


def test_launching_on_eight_cards_overlaps_with_their_messages() -> None:
    eight = replace(ONE, cards=8)
    own = {**values(), "pair.gaudi3": 1e30}
    found, alone = (
        steps(eight, LLAMA, each).decode(1, 0) for each in (own, {**own, "launch.gaudi3": 0.0})
    )
    both, messages = found.links + found.host - alone.host, alone.links
    launch = values()["launch.gaudi3"] / (1 + 1 / values()["launch.batch"])
    assert both == pytest.approx((messages**2 + launch**2) ** 0.5)


def test_a_mixture_reads_more_experts_with_a_larger_batch_up_to_all() -> None:
    model = steps(ONE, MIXTRAL, values())
    small, large = model.decode(1, 1).weights, model.decode(256, 1).weights
    read = 3.67e12 * values()["read.gaudi3"]
    assert small * read / 2 == pytest.approx(12.7e9, rel=0.03)
    assert large * read / 2 == pytest.approx(46.6e9, rel=0.03)


def test_without_the_fused_operator_one_token_reads_all_experts() -> None:
    model = steps(replace(ONE, fused=False), MIXTRAL, values())
    assert model.decode(1, 1).weights == model.decode(256, 1).weights


def test_parts_are_the_total() -> None:
    found = steps(replace(ONE, cards=8), LLAMA, values()).prefill(4, 2048)
    parts = found.weights + found.kv + found.arithmetic + found.links + found.host
    assert parts == pytest.approx(found.total)


def test_an_unmeasured_product_is_extrapolated_with_a_wider_range() -> None:
    figure = scored()[0]
    query = Query(figure.setup, figure.shape, figure.input, figure.output, figure.batch)
    near = evidence_for(query, figures(), values())
    far = evidence_for(replace(query, measured=False), figures(), values())
    assert (near.near, far.near) == (True, False)
    assert far.low < near.low < 1 < near.high < far.high


def test_a_figure_is_at_no_distance_from_its_own_load() -> None:
    for figure in scored():
        query = Query(figure.setup, figure.shape, figure.input, figure.output, figure.batch)
        assert distance(query, figure) == 0


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (
            {
                "model_type": "mixtral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
            46.7,
        ),
        (
            {
                "model_type": "falcon",
                "hidden_size": 14848,
                "num_hidden_layers": 80,
                "num_attention_heads": 232,
                "num_kv_heads": 8,
                "new_decoder_architecture": True,
                "vocab_size": 65024,
            },
            179.5,
        ),
        (
            DEEPSEEK_V3,
            671.0,
        ),
        (
            {
                "model_type": "gemma2",
                "hidden_size": 4608,
                "intermediate_size": 36864,
                "num_hidden_layers": 46,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "vocab_size": 256000,
            },
            27.2,
        ),
    ],
)
def test_parameters_are_counted_from_config_json(
    config: dict[str, object], billions: float
) -> None:
    found = parameters_of(model_from_config("m", config))
    assert found is not None
    assert found.language / 1e9 == pytest.approx(billions, rel=0.02)


def test_deepseek_passes_thirty_seven_billion_parameters_a_token() -> None:
    shape = shape_of(model_from_config("m", DEEPSEEK_V3))
    assert shape is not None
    assert shape.active / 1e9 == pytest.approx(37, rel=0.05)


def test_clients_whose_prompts_share_a_step_wait_for_no_other_prompt() -> None:
    model = steps(ONE, LLAMA, values())
    alone = closed_loop(model.prefill, model.decode, Lengths(256, 48), 4)
    shared = closed_loop(model.prefill, model.decode, Lengths(256, 48, 4.0), 4)
    assert (shared.ttft, shared.tpot) == (
        pytest.approx(model.prefill(4, 256).total),
        pytest.approx(model.decode(4, 280).total),
    )
    assert alone.ttft == pytest.approx(2.5 * model.prefill(1, 256).total)
    assert alone.tpot > alone.step


SERVED = Setup("gaudi2", 8, "bf16", 2.0, 2.0, "v1")


@pytest.mark.parametrize("tokens", [16, 1024, 8192, 60000, 200000])
def test_only_chunks_after_the_first_one_pay_for_a_mask(tokens: int) -> None:
    shape = shapes()["Qwen3-30B-A3B"]
    plain = float(steps(SERVED, shape, values()).prefill(1, tokens).total)
    seconds = [
        float(steps(replace(SERVED, step_tokens=budget), shape, values()).prefill(1, tokens).total)
        for budget in (200000, 16384, 8192, 1024)
    ]
    assert seconds == sorted(seconds)
    assert seconds[0] == plain
    assert (seconds[2] == plain) is (tokens <= 8192)


@pytest.mark.parametrize("batch", [1, 2, 16, 17, 64])
def test_a_gather_reads_the_chosen_experts_up_to_its_tokens(batch: int) -> None:
    shape = shapes()["Qwen3-30B-A3B"]
    chosen, every, gathered = (
        float(steps(setup, shape, values()).decode(batch, 1024).weights)
        for setup in (
            SERVED,
            replace(SERVED, fused=False),
            replace(SERVED, fused=False, gather=16),
        )
    )
    assert gathered == (chosen if batch <= 16 else every)


@pytest.mark.parametrize("name", [name for name, shape in shapes().items() if shape.state_layers])
@pytest.mark.parametrize("engine", ["static", "v0", "v1"])
def test_layers_with_a_state_make_prompts_and_steps_longer(name: str, engine: Engine) -> None:
    setup, shape = replace(SERVED, engine=engine), shapes()[name]
    without = replace(shape, state_layers=0.0)
    for tokens in (1, 128, 4096):
        own, other = (steps(setup, each, values()) for each in (shape, without))
        assert own.prefill(1, tokens).total > other.prefill(1, tokens).total
        assert own.decode(tokens, 64).total > other.decode(tokens, 64).total
