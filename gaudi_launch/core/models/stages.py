"""One pipeline stage of a model. Pure.

vLLM gives each stage an equal number of layers, the first one also the input embedding and the last
one the output projection, which is another copy where both are one matrix
(HabanaAI/vllm-fork@aice/v1.22.0:vllm/distributed/utils.py get_pp_indices).
"""

from __future__ import annotations

import math
from dataclasses import replace

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import is_tied


def stage_of(model: Model, stages: int) -> Model:
    """Return the largest of ``stages`` stages: its share of layers and weights.

    Where the layers cannot be divided evenly the most layers and an embedding are counted together.
    A stage is returned as it is.
    """
    if stages in (1, model.stages):
        return model
    size = _largest(model, stages)
    return replace(
        model,
        layers=_share(model.layers, 1 / stages),
        attention_layers=_share(model.attention_layers, 1 / stages),
        parameters=_share(model.parameters, size),
        weight_bytes=_share(model.weight_bytes, size),
        unloaded_bytes=model.unloaded_bytes // stages,
        stages=stages,
    )


def most_layers(model: Model, stages: int) -> float:
    """Return how many times its even share of layers the largest stage has."""
    if not model.layers:
        return 1.0
    return math.ceil(model.layers / stages) * stages / model.layers


def _largest(model: Model, stages: int) -> float:
    """Return the part of the parameters that the largest stage has."""
    even = most_layers(model, stages) / stages
    embedding = float((model.hidden_size or 0) * (model.vocab_size or 0))
    if not model.parameters or not embedding:
        return even
    copies = 2 - is_tied(model)
    layers = max(0.0, model.parameters - copies * embedding)
    return (layers * even + embedding) / model.parameters


def _share(value: int | None, part: float) -> int | None:
    if value is None:
        return None
    return math.ceil(value * part - 1e-6)
