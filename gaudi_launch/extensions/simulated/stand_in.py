"""The model that vLLM reads: a plain transformer's config.json, and a tokenizer.

vLLM reads lengths, heads and the vocabulary from it; the kinds of KV cache of the real model are in
the settings (`cache_kinds`). So no family needs vLLM's own class, code of the model's folder, or
the CPU platform's rules for it (vllm 0.32.0: vllm/platforms/cpu.py sets blocks of 16 tokens for MLA
and turns prefix caching off).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.models.config import read_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import kv_widths

# the name in vLLM's --additional-config under which the executor finds the path of this file
KEY = "simulated"
# the same draw of texts in each run
SEED = 0
TOKEN_STEP = 32
_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json")
# SmolLM2's, of which the demo is one: where its folder is not made yet
_DEMO_VOCABULARY = 49152
# any width does: nothing is computed
_HEAD_DIM = 128


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of a simulated model; ``own`` where it is the model's."""

    path: str
    vocabulary: int
    own: bool


def tokenizer_of(model: Model) -> Tokenizer:
    """Return the tokenizer in the model's folder, else the demo model's."""
    folder = Path(model.path).expanduser()
    if any((folder / name).is_file() for name in _FILES):
        return Tokenizer(str(folder.absolute()), model.vocab_size or _DEMO_VOCABULARY, own=True)
    demo = demo_dir()
    found = None
    if (demo / "config.json").is_file():
        found = read_config(demo).get("vocab_size")
    return Tokenizer(str(demo), found if isinstance(found, int) else _DEMO_VOCABULARY, own=False)


def stand_in_config(
    model: Model, tokenizer: Tokenizer, longest: int, cards: int
) -> Mapping[str, Any]:
    """Return config.json of a plain transformer with the sizes of ``model``.

    ``longest`` is the maximum length in tokens, ``cards`` divides the heads.
    """
    heads = cards
    if model.heads and model.heads % cards == 0:
        heads = model.heads
    kv_heads = model.kv_heads or heads
    if heads % kv_heads:
        kv_heads = heads
    found: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.hidden_size or heads * _HEAD_DIM,
        "intermediate_size": model.intermediate_size or 4 * heads * _HEAD_DIM,
        "num_hidden_layers": model.layers or 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": model.head_dim or _HEAD_DIM,
        "vocab_size": tokenizer.vocabulary,
        "max_position_embeddings": max(longest, model.max_position_embeddings or 0),
        "torch_dtype": "bfloat16",
        # the tokenizer names its own; a token of transformers' default number may be plain text
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if model.moe and model.experts:
        # vLLM refuses --enable-expert-parallel without, and copies take their steps together
        found["num_experts"] = model.experts
    return found


def config_text(config: Mapping[str, Any]) -> str:
    """Return the text of config.json."""
    return json.dumps(config, indent=1) + "\n"


@dataclass(frozen=True)
class CacheKind:
    """The KV cache of equal layers on one card.

    ``kind``: ``full`` keys and values, a ``latent`` or a ``state``; ``bytes`` of one element.
    """

    kind: str
    layers: int
    heads: int = 1
    head_size: int = 0
    bytes: int = 2


def cache_kinds(model: Model, cards: int, kv_bytes: int) -> tuple[CacheKind, ...]:
    """Return the KV cache of each kind of layers, as vllm-gaudi gives it to vLLM.

    A window counts as a full cache (`core.models.parameter_count.kv_widths` names the source).
    """
    layers = model.layers or 0
    attending = layers if model.attention_layers is None else model.attention_layers
    found: list[CacheKind] = []
    if model.mla_rank:
        found.append(CacheKind("latent", attending, head_size=model.mla_rank, bytes=kv_bytes))
    else:
        widths = kv_widths(model) or ((model.kv_heads or 1, 2 * (model.head_dim or 0)),) * attending
        for heads, width in dict.fromkeys(widths):
            # vLLM's page has the rows of keys and values, each of the same width here
            found.append(
                CacheKind(
                    "full",
                    widths.count((heads, width)),
                    max(1, heads // cards),
                    width // 2,
                    kv_bytes,
                )
            )
    if layers > attending:
        found.append(CacheKind("state", layers - attending))
    return tuple(found)
