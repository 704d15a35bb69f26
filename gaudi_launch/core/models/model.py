"""The facts of a model, from its folder or, without a folder, from its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.core.base.messages import Message


@dataclass(frozen=True)
class Model:
    """Facts of one model. ``None`` means "could not be read".

    ``path`` is what the user gave (folder or hub id), ``name`` its last part. ``source`` is
    ``config.json`` (a folder, also one of a hub's local cache), ``profile`` (one that lists this
    model), ``hub``, or ``name`` where only the name is known; ``unread`` is then the hub's reason.
    ``draft``: the draft model that the options name, as its folder states it. ``parameters`` counts
    weights; ``weight_bytes`` is their size on disk. ``mla_rank`` is kv_lora_rank + qk_rope_head_dim
    for MLA models. ``intermediate_size`` is the MLP's width that one token passes: in MoE models
    all experts of a token together. ``unloaded_bytes`` of ``weight_bytes`` belong to layers behind
    the last one (they guess further tokens), which engines skip. ``files_missing`` names shards
    that the index lists and the folder lacks, and a tokenizer. ``converted``: ``fp8 convert``
    brought the folder's fp8 weights into Gaudi2's range. ``stages``: this is the largest of this
    number of pipeline stages of a model (`core.models.stages`). ``vocab_rows``: the tokens that the
    weights' embedding has. ``tokens_missing``: the tokens of parsers that the tokenizer lacks.
    ``config_sizes``: what a profile states of config.json, by its names, that no other field has.
    """

    path: str
    name: str
    source: str = "name"
    architecture: str | None = None
    model_type: str | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    moe: bool | None = None
    experts: int | None = None
    layers: int | None = None
    attention_layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    mla_rank: int | None = None
    vocab_size: int | None = None
    vocab_rows: int | None = None
    max_position_embeddings: int | None = None
    remote_code: bool | None = None
    multimodal: tuple[str, ...] = ()
    tie_word_embeddings: bool | None = None
    unloaded_bytes: int = 0
    files_missing: tuple[str, ...] = ()
    tokens_missing: frozenset[str] = frozenset()
    converted: bool = False
    stages: int = 1
    unread: Message | None = None
    draft: Model | None = None
    config_sizes: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_only_a_name(self) -> bool:
        """Report whether the sizes are not known from any source."""
        return self.source == "name" and self.layers is None


@dataclass(frozen=True)
class Published:
    """Measurements for fp8 in a hub's repository for one number of cards.

    Their files begin with ``stem`` and are used with this ``quantisation`` (the QUANT_CONFIG's keys
    but its path).
    """

    repo: str
    cards: int
    stem: str
    quantisation: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    generation: str = ""
