"""The KV cache of simulated cards, and names of the executor's settings."""

from __future__ import annotations

from dataclasses import dataclass

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import kv_widths

# the name in vLLM's --additional-config under which the executor finds the path of this file
KEY = "simulated"
# the same draw of texts in each run
SEED = 0
TOKEN_STEP = 32


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
