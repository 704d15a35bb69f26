"""The settings of simulated cards, for the executor in `runtime`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import kv_widths
from gaudi_launch.core.planning.engine import Limits
from gaudi_launch.core.predict.step_time import StepTime

# the name in vLLM's --additional-config under which the executor finds the path of this file
KEY = "simulated"
# the same draw of texts in each run
SEED = 0
_TOKEN_STEP = 32


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


@dataclass(frozen=True)
class SimulatedCards:
    """The data of a plan for the executor.

    ``graph_seconds`` is the time to compile one graph, ``blocks`` the KV blocks of each copy of the
    model, ``ahead`` asynchronous scheduling; ``cards`` describes them in the log. ``thinks``:
    answers have a reasoning part, which vLLM's parser separates; ``faults`` are
    `faults.fault_document`'s. ``chunk`` is that of a model with states, in tokens.
    """

    cost: StepTime
    limits: Limits
    buckets: Buckets | None
    graph_seconds: float
    contiguous: bool
    warmed: bool
    time_scale: float
    kinds: Sequence[CacheKind]
    blocks: int
    ahead: bool
    cards: str
    thinks: bool = False
    faults: Sequence[Mapping[str, Any]] = ()
    chunk: int = 0

    def to_text(self) -> str:
        """Return the JSON text of the file."""
        limits, buckets = self.limits, self.buckets or Buckets([], [])
        document = {
            "cards": self.cards,
            "seed": SEED,
            "blocks": self.blocks,
            "ahead": self.ahead,
            "thinks": self.thinks,
            "faults": list(self.faults),
            "kv": [asdict(kind) for kind in self.kinds],
            "card": {
                "cost": self.cost.constants(),
                "prompt": buckets.prompt,
                "decode": buckets.decode,
                "graph_seconds": self.graph_seconds,
                "block_size": limits.block_size,
                "max_num_seqs": limits.max_num_seqs,
                "max_num_batched_tokens": limits.max_num_batched_tokens,
                "max_model_len": limits.max_model_len,
                "prefill_batch": limits.max_num_prefill_seqs,
                # vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/common.py,
                # initialize
                "token_step": max(_TOKEN_STEP, self.chunk),
                "contiguous": self.contiguous,
                "warmed": self.warmed,
                "time_scale": self.time_scale,
            },
        }
        return json.dumps(document, separators=(",", ":")) + "\n"


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
