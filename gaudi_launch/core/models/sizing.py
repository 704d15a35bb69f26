"""The memory that a model needs on a card, and the engine's use of the rest.

Pure arithmetic in bytes. Sources: HabanaAI/vllm-fork@277a33cd9, @17a7946f4, @016b6bd20:
vllm/worker/hpu_worker.py and cache_engine.py; vllm-project/vllm-gaudi@091bbadd:
vllm_gaudi/v1/worker/hpu_worker.py; huggingface/text-generation-inference@db931fcf:
flash_causal_lm.py of the Gaudi backend. What the sources do not state is marked as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.core.base.optional import mapped, value_or
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import kv_widths, mla_head_width, parameters_of

GIB = 1 << 30
BLOCK = 128
# awq and gptq store scales with their half bytes, about 5 % (facts on sizing: 3 to 10 %)
WEIGHT_BYTES: Mapping[str, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "awq": 0.525,
    "gptq": 0.525,
}
# checkpoints of these types quantise linear layers and experts: embedding, head and towers keep 16
# bits (vllm-project/vllm@v0.32.0:vllm/model_executor/layers/quantization/fp8.py, auto_awq.py and
# auto_gptq.py, get_quant_method)
_LINEAR_ONLY = ("fp8", "awq", "gptq")
_WIDE_BYTES = 2.0
# bytes of a weight on disk, for types that are only read: four bits, and an eight-bit scale for 32
# weights (OCP Microscaling Formats specification 1.0)
_STORED_BYTES: Mapping[str, float] = {"mxfp4": 4.25 / 8}
KV_BYTES: Mapping[str, int] = {
    "auto": 2,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "fp8_inc": 1,
    "fp8": 1,
    "fp8_e4m3fn": 1,
}
# gate, up and their product, and five rows of the hidden size (residual, norm, query, key with
# value, output): chosen so that the one public profiling run, 504 MiB for 4 x 1024 tokens of
# Llama-3.1-8B, comes out at 496 MiB
_MLP_ROWS, _HIDDEN_ROWS = 3, 5
# Llama's and Qwen's families are between 2.7 and 5.3; assumed where config.json does not say
_MLP_RATIO = 3.5


@dataclass(frozen=True)
class MemoryRules:
    """The rules by which one engine version divides a card.

    ``blocks_step``: blocks are rounded down to complete decode steps. ``profile_run`` False: its
    profile run returns immediately, so that activations are neither measured nor kept free.
    ``fixed_share``: the fraction of free memory that becomes the cache. ``virtual_engines``: as
    many as pipeline stages serve requests, each with an equal part of the cache.
    """

    profile_run: bool = True
    blocks_step: bool = False
    spare_block: bool = False
    fixed_share: float | None = None
    virtual_engines: bool = False


@dataclass(frozen=True)
class StateBlocks:
    """The rules by which states and keys share blocks of one size.

    A block is a multiple of ``step`` tokens. ``counted``: buckets and limits count these blocks,
    not those of 128 tokens. ``apart``: keys and states of a block have separate memory. ``copies``:
    the blocks of states that each request has in each group of layers.
    """

    step: int = 128
    counted: bool = False
    apart: bool = False
    copies: int = 1


@dataclass(frozen=True)
class CacheRules:
    """The rules by which an engine version counts a token of its cache.

    ``compressed``: MLA keeps its latent; otherwise keys and values of all heads, each as wide as a
    query (HabanaAI/vllm-fork@17a7946f:vllm/config.py get_head_size). ``shared``: layers that use
    the cache of another one have no other. ``compact_states``: states of linear attention have
    slots next to the cache, one for each request. ``state_blocks``: None where states have no
    blocks.
    """

    compressed: bool = True
    shared: bool = True
    compact_states: bool = False
    state_blocks: StateBlocks | None = None


AS_NAMED = CacheRules()


@dataclass(frozen=True)
class Split:
    """A card's free memory after weights, in bytes.

    ``margin`` is never used, ``graphs`` is kept for capture.
    """

    free: float
    usable: float
    graphs: float
    kv: float

    @property
    def margin(self) -> float:
        return self.free - self.usable


def in_gib(size: float) -> float:
    """Return bytes as the GiB of plans, files and screens: two decimals."""
    return round(size / GIB, 2)


def weight_bytes(model: Model, dtype: str = "bfloat16") -> float | None:
    """Return the bytes of the weights that are loaded, in ``dtype``.

    That is their size on disk when they are stored in this type, else parameters times bytes.

    >>> weight_bytes(Model("m", "m", parameters=8_030_261_248)) / GIB  # doctest: +ELLIPSIS
    14.957...
    """
    on_disk = model.quantization or model.dtype
    loaded = 1.0
    if model.weight_bytes:
        loaded = 1 - model.unloaded_bytes / model.weight_bytes
    if model.weight_bytes and on_disk == dtype:
        return model.weight_bytes * loaded
    if (
        dtype not in WEIGHT_BYTES
    ):  # compressed-tensors and the like: as large on the card as on disk, or not known
        return None
    parameters = model.parameters or counted_parameters(model)
    if parameters:
        wide = _unquantised(model) if on_disk == dtype and dtype in _LINEAR_ONLY else 0
        return loaded * ((parameters - wide) * WEIGHT_BYTES[dtype] + wide * _WIDE_BYTES)
    stored = {**WEIGHT_BYTES, **_STORED_BYTES}.get(on_disk or "")
    if model.weight_bytes and stored:
        return model.weight_bytes * loaded / stored * WEIGHT_BYTES[dtype]
    return None


def _unquantised(model: Model) -> int:
    """Return the parameters that a quantised checkpoint keeps as they were."""
    found = parameters_of(model)
    return found.embedding + found.head + found.tower if found else 0


def counted_parameters(model: Model) -> int | None:
    """Return the parameters by config.json alone, for a folder without weights.

    Return None where it lacks a width: a guess is not a size.
    """
    if model.weight_bytes or not model.config:
        return None
    if not (model.vocab_size and model.intermediate_size):
        return None
    found = parameters_of(model)
    return mapped(lambda counted: counted.total, found)


def weight_bytes_per_card(model: Model, cards: int, dtype: str = "bfloat16") -> float | None:
    """Return the weights of one rank: tensor parallelism divides all but norms.

    Norms are too small to count.
    """
    total = weight_bytes(model, dtype)
    return mapped(lambda each: each / cards, total)


def kv_bytes_per_token(
    model: Model, cards: int = 1, kv_bytes: int = 2, rules: CacheRules = AS_NAMED
) -> int | None:
    """Return the bytes of KV cache of one token on one card.

    Heads are divided until each card has one, then replicated; the compressed cache of MLA is
    replicated on every card.

    >>> kv_bytes_per_token(Model("m", "m", layers=80, kv_heads=8, head_dim=128), cards=4)
    81920
    >>> kv_bytes_per_token(Model("m", "m", layers=61, mla_rank=576), cards=8)
    70272
    """
    layers = value_or(model.attention_layers, model.layers)
    if layers is None:
        return None
    if model.mla_rank and rules.compressed:
        return layers * model.mla_rank * kv_bytes
    if model.mla_rank:
        width = mla_head_width(model)
        if model.heads and width:
            return layers * max(1, model.heads // cards) * 2 * width * kv_bytes
        return None
    widths = kv_widths(model, shared=rules.shared)
    if widths:
        return sum(max(1, heads // cards) * width for heads, width in widths) * kv_bytes
    if not model.kv_heads or not model.head_dim:
        return None
    return 2 * layers * max(1, model.kv_heads // cards) * model.head_dim * kv_bytes


def block_bytes(
    model: Model, cards: int = 1, kv_bytes: int = 2, rules: CacheRules = AS_NAMED
) -> int | None:
    """Return the bytes of one KV block on one card.

    >>> block_bytes(Model("m", "m", layers=32, kv_heads=8, head_dim=128)) // (1 << 20)
    16
    """
    token = kv_bytes_per_token(model, cards, kv_bytes, rules)
    return mapped(lambda each: each * BLOCK, token)


def activation_bytes(model: Model, tokens: int, cards: int = 1) -> float:
    """Return the peak of the profiling run for ``tokens`` of prompt, in bytes.

    Assumed from one public measurement.

    >>> llama = Model("m", "m", hidden_size=4096, intermediate_size=14336)
    >>> round(activation_bytes(llama, 4 * 1024) / (1 << 20))
    496
    """
    hidden = model.hidden_size or 0
    middle = (model.intermediate_size or _MLP_RATIO * hidden) / cards
    return 2.0 * tokens * (_MLP_ROWS * middle + _HIDDEN_ROWS * hidden)


def split(
    free: float, utilization: float = 0.9, reserved: float = 0.1, eager: bool = False
) -> Split:
    """Divide the free memory after weights and profiling run as vLLM's workers do.

    >>> found = split(79.16, 0.5, 0.4)
    >>> [round(part, 2) for part in (found.usable, found.graphs, found.kv)]
    [39.58, 15.83, 23.75]
    """
    usable = free * utilization
    graphs = 0.0 if eager else usable * reserved
    return Split(free, usable, graphs, usable - graphs)


def count_blocks(kv: float, block: int, rules: MemoryRules, step: int = BLOCK) -> int:
    """Return the number of KV blocks that the engine allocates in ``kv`` bytes.

    >>> count_blocks(23.748 * GIB, 16 << 20, MemoryRules())
    1519
    >>> count_blocks(23.748 * GIB, 16 << 20, MemoryRules(blocks_step=True))
    1408
    """
    blocks = max(0, int(kv // block))
    if rules.spare_block:
        blocks = max(0, blocks - 1)
    if rules.blocks_step:
        return blocks // step * step
    return blocks


def concurrency(blocks: int, max_model_len: int) -> float:
    """Return the requests of full length that fit in the cache, as engines log it.

    >>> concurrency(16384, 512)
    4096.0
    """
    return blocks * BLOCK / max_model_len


def profile_tokens(max_num_seqs: int, max_num_batched_tokens: int, longest_prompt: int) -> int:
    """Return the tokens of the profiling run: the longest prompts of one batch.

    >>> profile_tokens(128, 8192, 4224)
    4224
    """
    batch = min(max_num_seqs, max_num_batched_tokens // max(1, longest_prompt))
    if batch:
        return batch * longest_prompt
    return max_num_batched_tokens


def divides(model: Model, cards: int) -> bool:
    """Return True if this model can be divided over this number of cards.

    Heads are divided; kv heads are divided, or replicated completely.

    >>> [n for n in (1, 2, 3, 4, 8, 16) if divides(Model("m", "m", heads=28, kv_heads=4), n)]
    [1, 2, 4]
    """
    heads, kv = model.heads, model.kv_heads
    if heads and heads % cards:
        return False
    return model.mla_rank is not None or not kv or kv % cards == 0 or cards % kv == 0


def units(
    parameters_billions: float, bytes_per_weight: float, unit_gb: float, usable: float = 1.0
) -> int:
    """Return how many devices of ``unit_gb`` (1e9 bytes) the weights alone need.

    >>> [units(billions, 2, 16) for billions in (70, 13, 7)]
    [9, 2, 1]
    """
    # in thousandths: 0.9 * 128 must not become 115.19999
    total = round(parameters_billions * bytes_per_weight * 1000)
    return -(-total // round(unit_gb * usable * 1000))
