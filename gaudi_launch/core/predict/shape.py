"""The reads and operations of a model's step, before it is divided over cards.

Pure. Counts follow the models' public config.json files; where config.json leaves a width to the
model's class, its usual multiple is assumed (`core.models.parameter_count.default_inner`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.models.config import CHOSEN_EXPERTS, text_part
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import (
    default_inner,
    has_modal_experts,
    is_tied,
    layer_kinds,
    mla_head_width,
    parameters_of,
)

# gate, up and down: the matrices of one routed expert
_GATED = 3
# kinds of layers that keep a state of fixed size: linear attention and Mamba
_STATES = ("linear", "mamba", "both", "conv")


@dataclass(frozen=True)
class Shape:
    """Sizes of one model, in parameters and elements.

    ``body`` is read by every step, without embeddings and routed experts; ``head`` is the output
    projection. ``experts`` are all routed experts together and ``share`` the part of them that one
    token passes. ``width`` is query heads x head size, ``kv_width`` one key-value head's size and
    ``inner`` the width of the MLP that one token passes. ``latent``: keys and values are projected
    through a low rank (MLA and MiniCPM3). ``state_layers`` keep a state of fixed size (linear
    attention, Mamba). ``expert_layers`` have routed experts; ``routes`` is the number of experts
    that one token passes in all of them.
    """

    layers: float
    attention_layers: float
    hidden: float
    inner: float
    body: float
    head: float
    width: float
    kv_heads: float
    kv_width: float
    mla_rank: float = 0.0
    experts: float = 0.0
    share: float = 0.0
    latent: bool = False
    multi_head: bool = False
    state_layers: float = 0.0
    expert_layers: float = 0.0
    routes: float = 0.0

    @property
    def parameters(self) -> float:
        """Return the parameters that steps read: all but a separate input embedding."""
        return self.body + self.head + self.experts

    @property
    def active(self) -> float:
        """Return the parameters that one decoded token passes."""
        return self.body + self.head + self.experts * self.share

    def kv_elements(self, cards: int) -> float:
        """Return the elements of the KV cache of one token on one of ``cards``.

        Heads are divided until each card has one.
        """
        if self.mla_rank:
            return self.attention_layers * self.mla_rank
        heads = max(1.0, self.kv_heads / cards)
        return 2 * self.attention_layers * heads * self.kv_width


def _experts_of(model: Model, parameters: float, inner: int) -> tuple[float, float]:
    """Return the parameters of all experts, and the share that one token passes."""
    if not model.moe:
        return 0.0, 0.0
    assert model.layers and model.hidden_size
    experts = max(0.0, parameters)
    if not experts:
        return experts, 1.0
    passed = float(model.layers * _GATED * model.hidden_size * inner)
    return experts, min(1.0, passed / experts)


def _chosen(model: Model) -> float:
    """Return how many routed experts of a layer one token passes; 1 if not stated."""
    text = text_part(model.config)
    for name in CHOSEN_EXPERTS:
        found = text.get(name)
        if isinstance(found, int):
            return found
    return 1


def _tables(model: Model) -> int:
    """Return the number of embedding tables: one serves input and output where tied."""
    if is_tied(model):
        return 1
    return 2


def shape_of(model: Model) -> Shape | None:
    """Return the sizes of ``model``.

    Return None where its layers, hidden size or heads are not known, or its parameters cannot be
    counted.
    """
    model = replace(model, config=model.config or model.config_sizes)
    if not (model.layers and model.hidden_size and model.heads and model.head_dim):
        return None
    # which experts a token passes depends on what it stands for
    if has_modal_experts(model) and not model.moe:
        return None
    counted = parameters_of(model)
    if counted is None:
        return None
    parameters = model.parameters or float(counted.language)
    inner = model.intermediate_size or default_inner(model)
    kv_heads = model.kv_heads or model.heads
    embedding = float(model.hidden_size * (model.vocab_size or 0))
    embeddings = embedding * _tables(model)
    attention = float(sum(layer.attention for layer in counted.layers))
    routed = sum(layer.experts > 0 for layer in counted.layers)
    experts, share = _experts_of(model, parameters - embeddings - attention, inner)
    return Shape(
        layers=model.layers,
        attention_layers=value_or(model.attention_layers, model.layers),
        hidden=model.hidden_size,
        inner=inner,
        body=max(1.0, parameters - embeddings - experts),
        head=embedding,
        width=model.heads * (mla_head_width(model) or model.head_dim),
        kv_heads=kv_heads,
        kv_width=model.head_dim,
        mla_rank=model.mla_rank or 0,
        experts=experts,
        share=share,
        latent=bool(model.mla_rank) or "kv_lora_rank" in model.config,
        multi_head=kv_heads == model.heads and not model.mla_rank,
        state_layers=sum(kind in _STATES for kind in layer_kinds(model)),
        expert_layers=routed,
        routes=routed * _chosen(model),
    )
