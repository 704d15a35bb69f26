"""Pipeline stages of a model: the largest one."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.models.stages import stage_of
from gaudi_launch.core.planning.known_model import known_model

LLAMA = known_model("meta-llama/Llama-3.1-405B-Instruct", False)


def test_two_even_stages_each_have_one_of_both_embeddings() -> None:
    stage = stage_of(LLAMA, 2)
    assert LLAMA.parameters is not None
    assert (stage.layers, stage.attention_layers, stage.heads) == (63, 63, 128)
    assert stage.parameters == LLAMA.parameters / 2


def test_sizes_that_are_not_known_stay_unknown() -> None:
    unknown = replace(LLAMA, parameters=None, weight_bytes=None, layers=None)
    stage = stage_of(unknown, 2)
    assert (stage.parameters, stage.weight_bytes, stage.layers) == (None, None, None)
