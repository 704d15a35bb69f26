"""The rows of fit: allowed numbers of cards, reasons, and the placements that public documents
show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.models.card_memory import (
    CardMemory,
    FitRow,
    FitTable,
    ServingDemand,
    divide_card,
    fit_each,
    fit_weights_only,
    too_tight,
    verdict,
)
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import GIB, CacheRules, MemoryRules, Split, in_gib
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.known_model import known_model
from tests.support.model_files import NEXT

GAUDI2, GAUDI3 = 95795 << 20, 129024 << 20
ASK = ServingDemand(max_model_len=4096, max_num_seqs=32)
CARDS = (1, 2, 4, 8)


def known(name: str) -> Model:
    return known_model(profiles.find(name).models[0], must_exist=False)


# what public documents run: the smallest number must not be above theirs
@pytest.mark.parametrize(
    ("name", "card", "dtype", "length", "smallest", "shown"),
    [
        ("llama-2-7b", GAUDI2, "bfloat16", 4096, 1, 1),
        ("mistral-7b", GAUDI2, "bfloat16", 4096, 1, 1),
        ("mixtral-8x7b", GAUDI2, "bfloat16", 4096, 2, 2),  # the weights alone would fit one card
        ("llama-2-70b", GAUDI2, "bfloat16", 4096, 2, 8),
        ("llama-3.1-70b", GAUDI2, "bfloat16", 2048, 2, 2),  # OPEA: 2 cards with 2048 tokens
        ("qwen2-72b", GAUDI2, "bfloat16", 8192, 2, 4),
        ("deepseek-r1-distill-qwen-32b", GAUDI2, "bfloat16", 8192, 1, 2),
        ("deepseek-r1-distill-llama-8b", GAUDI2, "bfloat16", 8192, 1, 1),
        ("deepseek-r1", GAUDI2, "fp8", 16384, 8, 8),
        ("qwq-32b", GAUDI2, "bfloat16", 40960, 1, 8),
    ],
)
def test_public_placements(
    name: str, card: int, dtype: str, length: int, smallest: int, shown: int
) -> None:
    ask = replace(ASK, max_model_len=length)
    found = fit_each(known(name), card, CARDS, [dtype], lambda n, kind: (ask, MemoryRules()))
    assert found.smallest_n == smallest <= shown
    row = next(row for row in found.rows if row.n == shown)
    assert row.fits
    parts = [
        row.weights_gib_per_card, row.activations_gib_per_card, row.graphs_gib_per_card,
        row.kv_gib_per_card, row.states_gib_per_card,
    ]  # fmt: skip
    assert 0.8 * card < sum(part or 0 for part in parts) * GIB <= card


def test_inferentia_that_is_too_small() -> None:
    table = fit_weights_only(known("llama-2-70b"), 12, [1, 12, 24], ["float32"])
    assert table.smallest_n is None
    assert [row.reason.id for row in table.rows] == [
        "fit.neuron_short",
        "fit.neuron_short",
        "fit.neuron_too_many",
    ]


RULES = tuple(registry.find(name).memory_rules({}) for name in entries.ENGINES)


@given(
    st.integers(1, 131072),
    st.integers(1, 512),
    st.floats(0.05, 1),
    st.floats(0, 0.9),
    st.sampled_from(RULES),
)
def test_more_cards_never_hold_less(
    length: int, seqs: int, share: float, reserved: float, rules: MemoryRules
) -> None:
    ask = ServingDemand(length, seqs, length, length, share, reserved)
    rows = fit_each(
        known("llama-3.1-8b"), GAUDI2, CARDS, ["bfloat16"], lambda n, kind: (ask, rules)
    ).rows
    tokens = [row.longest_context or 0 for row in rows]
    assert tokens == sorted(tokens)
    assert all(row.longest_context or length <= 0 for row in rows if row.fits)


def test_states_are_taken_from_the_margin_then_from_the_graphs() -> None:
    model = Model(
        "m", "m", layers=48, attention_layers=12, hidden_size=2048, intermediate_size=5120,
        heads=16, kv_heads=2, head_dim=256, parameters=20_000_000_000, dtype="bfloat16",
        config=NEXT,
    )  # fmt: skip
    rules = MemoryRules()

    def divided(requests: int, *, compact: bool = True) -> CardMemory:
        ask = replace(ASK, max_num_seqs=requests, cache=CacheRules(compact_states=compact))
        found = divide_card(model, 1, "bfloat16", GAUDI2, ask, rules)
        assert found is not None
        return found

    none, few, many = divided(64, compact=False), divided(64), divided(256)
    assert (none.states, few.states) == (0, 12 * (64 * 3 + 2) * 1_097_728)
    assert none.cache == few.cache
    assert few.unused == none.unused - few.states
    assert few.graphs == none.graphs
    # 9.4 GiB: more than the margin
    assert many.unused == 0
    assert many.graphs == many.parts.graphs - (many.states - none.unused)
    assert too_tight(few, ASK) is None
    full = too_tight(divided(512), replace(ASK, max_num_seqs=512))
    assert full is not None and full.id == "fit.states"


SMALL = Model("m", "m", heads=8, kv_heads=4, layers=2, head_dim=128, hidden_size=1024,
              intermediate_size=4096, parameters=500_000_000, weight_bytes=1_000_000_000,
              max_position_embeddings=4096)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "n", "reason"),
    [
        (SMALL, 3, message("fit.heads", heads=8, n=3)),
        (replace(SMALL, kv_heads=3), 2, message("fit.kv_heads", heads=3, n=2)),
        (
            replace(SMALL, parameters=None, weight_bytes=None, layers=None),
            1,
            message("fit.unknown", model="m"),
        ),
    ],
)
def test_rows_without_a_division(model: Model, n: int, reason: Message) -> None:
    table = fit_each(model, 16 * GIB, [n], ["bfloat16"], lambda n, kind: (ASK, MemoryRules()))
    assert table == FitTable((FitRow(n, "bfloat16", False, reason),), None)


def test_a_division_that_is_refused_is_a_row() -> None:
    error = LaunchError("fit.unknown", ExitCode.MODEL, model="x")

    def divided(n: int, dtype: str) -> tuple[ServingDemand, MemoryRules]:
        raise error

    table = fit_each(SMALL, 16 * GIB, [1], ["bfloat16"], divided)
    assert table.rows == (FitRow(1, "bfloat16", False, error.text),)
    error.exit_code = ExitCode.USAGE
    with pytest.raises(LaunchError):
        fit_each(SMALL, 16 * GIB, [1], ["bfloat16"], divided)


def divided_card(**changes: Any) -> CardMemory:
    parts = Split(free=8.0 * GIB, usable=7.0 * GIB, graphs=2.0 * GIB, kv=5.0 * GIB)
    made = CardMemory(10.0 * GIB, 1.0 * GIB, 1.0 * GIB, parts, 1 << 20, 4000)
    return replace(made, **changes)


VERDICT_ASK = ServingDemand(max_model_len=2048, max_num_seqs=4)


@pytest.mark.parametrize(
    ("changes", "verdict_of"),
    [
        ({"weights": 10.0 * GIB}, (False, message("fit.weights", weights="10.0", card="10.0"))),
        ({"pools": True}, (True, message("fit.pools"))),
        (
            {"pools": True, "parts": Split(0.0, 0.0, 0.0, 0.0), "blocks": 0},
            (False, message("fit.no_cache", used="2.0", card="10.0")),
        ),
        ({"blocks": 0}, (False, message("fit.no_cache", used="2.0", card="10.0"))),
        ({"blocks": 15}, (False, message("fit.short", tokens=1920, length=2048))),
        ({"blocks": 16}, (True, message("fit.fits_some", times="1.0", length=2048, most=4))),
        ({"blocks": 64}, (True, message("fit.fits", times="4", length=2048))),
    ],
)
def test_whether_an_engine_starts(
    changes: dict[str, Any], verdict_of: tuple[bool, Message]
) -> None:
    assert verdict(divided_card(**changes), VERDICT_ASK) == verdict_of


def test_whether_it_has_room_to_work() -> None:
    # 16 blocks of 1 MiB for one request, and nine tenths of the card
    limit = 9.0 * GIB - 1.0 * GIB - 16 * (1 << 20)
    card = divided_card(weights=limit, parts=Split(0.0, 0.0, 0.0, 0.0))
    assert too_tight(card, VERDICT_ASK) is None
    more = replace(card, weights=limit + (1 << 20))
    assert too_tight(more, VERDICT_ASK) == message(
        "fit.tight", length=2048, used="9.0", card="10.0"
    )
    assert too_tight(replace(more, pools=True), VERDICT_ASK) is None
    states = divided_card(states=int(3.5 * GIB))
    assert too_tight(states, VERDICT_ASK) == message(
        "fit.states", requests=4, states="3.5", left="3.0"
    )
    assert too_tight(replace(states, states=int(3.0 * GIB)), VERDICT_ASK) is None


def test_rows_of_neuron_cores() -> None:
    big = replace(SMALL, parameters=1_500_000_000, weight_bytes=3_000_000_000)
    words = {"total": "3.0", "cores": 3, "chips": 2}
    table = fit_weights_only(big, 4, None, ["bfloat16"], core_gb=1)
    assert [(row.n, row.fits, row.reason) for row in table.rows] == [
        (1, False, message("fit.neuron_short", **words, n=1, have=4)),
        (3, True, message("fit.neuron_fits", **words, n=3, have=4)),
        (4, True, message("fit.neuron_fits", **words, n=4, have=4)),
    ]
    assert (table.smallest_n, table.rows[1].weights_gib_per_card) == (3, in_gib(1e9))
    few = fit_weights_only(big, 2, None, ["bfloat16"], core_gb=1)
    assert [row.n for row in few.rows] == [1, 2]
    chosen = fit_weights_only(big, 4, [8], ["bfloat16"], core_gb=1)
    assert [row.reason for row in chosen.rows] == [
        message("fit.neuron_too_many", **words, n=8, have=4)
    ]
    unknown = replace(SMALL, parameters=None, weight_bytes=None)
    row = FitRow(4, "bfloat16", False, message("fit.unknown", model="m"))
    assert fit_weights_only(unknown, 4, None, ["bfloat16"]) == FitTable((row,), None)


def test_an_engine_without_a_cache() -> None:
    ask = replace(VERDICT_ASK, pools=True)
    card = divide_card(SMALL, 1, "bfloat16", 16 * GIB, ask, MemoryRules())
    assert card is not None
    free = 16 * GIB - card.weights - card.activations
    assert (card.parts, card.blocks, card.pools) == (Split(free, free, 0.0, 0.0), 0, True)
    (row,) = fit_each(SMALL, 16 * GIB, [1], ["bfloat16"], lambda n, kind: (ask, MemoryRules())).rows
    assert row.longest_context == 2048
    # nor has a model without attention, which nothing limits then
    without = replace(SMALL, attention_layers=0)
    card = divide_card(without, 1, "bfloat16", 16 * GIB, VERDICT_ASK, MemoryRules())
    assert card is not None and (card.block, card.blocks) == (0, 2048)
