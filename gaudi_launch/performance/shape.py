"""The reads and operations of a model's step, before it is divided over cards.

Pure. Counts follow the models' public config.json files; where config.json leaves a width to the
model's class, its usual multiple is assumed (`_MLP_MULTIPLE`, `_MLP_RATIO`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.models.model import Model

# gate, up and down; the older families have no gate (their modelling files in transformers)
_GATED, _PLAIN = 3, 2
_PLAIN_TYPES = (
    "gptj", "gpt_neo", "gpt2", "gpt_bigcode", "starcoder2", "bloom", "opt", "falcon", "phi", "mpt", "codegen",
    "xglm",
)  # fmt: skip
_GATED_TYPES = ("phi3", "phimoe", "phi4")
# families whose output head is their embedding unless config.json says otherwise
_TIED_TYPES = (
    "gemma", "gpt2", "gpt_bigcode", "starcoder2", "bloom", "opt", "falcon", "mpt", "xglm", "gpt_neo", "minicpm",
    "cohere",
)  # fmt: skip
_UNTIED_TYPES = ("gpt_neox",)
_MLP_MULTIPLE = 4
_MLP_RATIO = 3.5


@dataclass(frozen=True)
class Shape:
    """Sizes of one model, in parameters and elements.

    ``body`` is read by every step, without embeddings and routed experts; ``head`` is the output projection.
    ``experts`` are all routed experts together and ``share`` the part of them that one token passes.
    ``width`` is query heads x head size, ``kv_width`` one key-value head's size and ``inner`` the width of the MLP
    that one token passes. ``latent``: keys and values are projected through a low rank (MLA and MiniCPM3).
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


def shape_of(model: Model) -> Shape | None:
    """Return the sizes of ``model``.

    Return None where its layers, hidden size or heads are not known.
    """
    if not (model.layers and model.hidden_size and model.heads and model.head_dim):
        return None
    parameters = model.parameters or count_parameters(model)
    inner = model.intermediate_size or _default_inner(model)
    kv_heads = model.kv_heads or model.heads
    embedding = float(model.hidden_size * (model.vocab_size or 0))
    tied = is_tied(model)
    embeddings = embedding if tied else 2 * embedding
    attention = float(model.layers * _attention(model))
    experts, share = 0.0, 0.0
    if model.moe:
        experts = max(0.0, parameters - embeddings - attention)
        passed = float(model.layers * _GATED * model.hidden_size * inner)
        share = min(1.0, passed / experts) if experts else 1.0
    return Shape(
        layers=model.layers,
        attention_layers=model.layers if model.attention_layers is None else model.attention_layers,
        hidden=model.hidden_size,
        inner=inner,
        body=max(1.0, parameters - embeddings - experts),
        head=embedding,
        width=model.heads * model.head_dim,
        kv_heads=kv_heads,
        kv_width=model.head_dim,
        mla_rank=model.mla_rank or 0,
        experts=experts,
        share=share,
        latent=bool(model.mla_rank) or "kv_lora_rank" in model.config,
        multi_head=kv_heads == model.heads and not model.mla_rank,
    )


def is_tied(model: Model) -> bool:
    """Return True if the output head is the input embedding."""
    if model.tie_word_embeddings is not None:
        return model.tie_word_embeddings
    kind = model.model_type or ""
    return kind.startswith(_TIED_TYPES) and not kind.startswith(_UNTIED_TYPES)


def count_parameters(model: Model) -> float:
    """Return the number of parameters by config.json alone, without weights.

    >>> llama = Model("m", "m", layers=32, hidden_size=4096, intermediate_size=14336, heads=32, kv_heads=8,
    ...     head_dim=128, vocab_size=128256)
    >>> round(count_parameters(llama) / 1e9, 2)
    8.03
    """
    assert model.layers and model.hidden_size
    embedding = model.hidden_size * (model.vocab_size or 0)
    embeddings = embedding if is_tied(model) else 2 * embedding
    attention = model.layers * _attention(model)
    return float(embeddings + attention + _mlps(model))


def _default_inner(model: Model) -> int:
    hidden = model.hidden_size or 0
    if _is_plain(model):
        return _MLP_MULTIPLE * hidden
    return int(_MLP_RATIO * hidden)


def _is_plain(model: Model) -> bool:
    kind = model.model_type or ""
    return kind.startswith(_PLAIN_TYPES) and not kind.startswith(_GATED_TYPES)


def _attention(model: Model) -> int:
    """Return the parameters of one layer's attention."""
    assert model.hidden_size and model.heads and model.head_dim
    hidden, heads = model.hidden_size, model.heads
    text = text_config(model)
    rank = _number(text, "kv_lora_rank")
    if rank:
        rope = _number(text, "qk_rope_head_dim")
        plain = _number(text, "qk_nope_head_dim") or model.head_dim
        value = _number(text, "v_head_dim") or model.head_dim
        query_rank = _number(text, "q_lora_rank")
        query = hidden * heads * (plain + rope)
        if query_rank:
            query = query_rank * (hidden + heads * (plain + rope))
        return query + hidden * (rank + rope) + rank * heads * (plain + value) + heads * value * hidden
    kv_heads = model.kv_heads or heads
    if model.mla_rank:
        return 2 * hidden * heads * model.head_dim
    return 2 * hidden * model.head_dim * (heads + kv_heads)


def _mlps(model: Model) -> int:
    """Return the parameters of all layers' MLPs, routed experts included."""
    assert model.layers and model.hidden_size
    matrices = _PLAIN if _is_plain(model) else _GATED
    inner = model.intermediate_size or _default_inner(model)
    if not (model.moe and model.experts):
        return model.layers * matrices * model.hidden_size * inner
    text = text_config(model)
    each = _number(text, "moe_intermediate_size") or _number(text, "intermediate_size") or inner
    chosen = _number(text, "num_experts_per_tok") or _number(text, "moe_topk") or 1
    # what a token passes in addition to its selected experts is shared by all tokens
    shared = max(0, inner - chosen * each)
    plain_layers = _number(text, "first_k_dense_replace")
    every = _number(text, "interleave_moe_layer_step") or 1
    mixed_layers = max(1, (model.layers - plain_layers) // every)
    of_mixed = mixed_layers * (model.experts * each + shared)
    of_plain = (model.layers - mixed_layers) * inner
    return _GATED * model.hidden_size * (of_mixed + of_plain)


def text_config(model: Model) -> Mapping[str, object]:
    """Return the part of config.json that describes the language model."""
    for name in ("text_config", "llm_config", "language_config"):
        part = model.config.get(name)
        if isinstance(part, Mapping):
            return part
    return model.config


def _number(document: Mapping[str, object], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
