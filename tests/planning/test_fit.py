"""fit's rows are what a plan for so many cards says, for every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.engines import registry
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.messages import message
from gaudi_launch.models.card_memory import MOST_OF_A_CARD, FitRow, FitTable
from gaudi_launch.models.model import Model
from gaudi_launch.models.sizing import BLOCK
from gaudi_launch.planning.fit import divided, ways_out
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def known(name: str) -> Model:
    return known_model(name, must_exist=False)


def test_the_first_gaudi_has_no_eight_bit_floats() -> None:
    model, chosen = known(LLAMA), registry.find("vllm-fork@1.22")
    with pytest.raises(LaunchError) as caught:
        divided(chosen, Request(LLAMA), accelerators()["gaudi1"], model, 1, "fp8")
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.MACHINE,
        message("fit.no_fp8", card=accelerators()["gaudi1"].title),
    )


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
