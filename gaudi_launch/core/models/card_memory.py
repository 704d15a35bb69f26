"""Numbers of cards on which a model fits: a row per number and data type. Pure.

Each row has its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.recurrent_state import StatePage, compact_bytes, page_of
from gaudi_launch.core.models.sizing import BLOCK, MemoryRules, in_gib

# 16 GB (1e9) of an Inferentia2 core, two cores an accelerator: the public guide's table
NEURON_CORE_GB = 16
_CORES_A_CHIP = 2
MOST_OF_A_CARD = 0.9


@dataclass(frozen=True)
class ServingDemand:
    """The requested service and how the engine divides a card. Lengths in tokens.

    ``more_weights`` and ``more_block`` are bytes on each card for what the user's options add:
    adapters, a draft model and its part of a KV block.
    """

    max_model_len: int
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 0
    longest_prompt: int = 0
    utilization: float = 0.9
    reserved: float = 0.1
    eager: bool = False
    kv_dtype: str = "auto"
    blocks_step: int = BLOCK
    pools: bool = False
    cache: sizing.CacheRules = sizing.AS_NAMED
    more_weights: float = 0.0
    more_block: int = 0

    @property
    def profile_tokens(self) -> int:
        longest = self.longest_prompt or self.max_model_len
        return sizing.profile_tokens(
            self.max_num_seqs, self.max_num_batched_tokens or longest, longest
        )


@dataclass(frozen=True)
class CardMemory:
    """One card divided, in bytes.

    weights + activations + margin + graphs + kv = card; ``states`` are allocated from the margin
    and what is kept for graphs, after the cache; ``kv`` is below 0 when the card is too
    small. ``block`` is the size of one KV block of ``block_tokens`` on this card, ``blocks`` how
    many each of ``engines`` has (more than one: virtual engines of pipeline stages), ``lost`` how
    many more would fit if they were not rounded down to complete decode steps. ``page``: the block
    that keys and states share; ``kept`` bytes of the cache are states of the requests that fit.
    """

    card: float
    weights: float
    activations: float
    parts: sizing.Split
    block: int
    blocks: int
    lost: int = 0
    pools: bool = False
    states: int = 0
    engines: int = 1
    block_tokens: int = BLOCK
    page: StatePage | None = None
    kept: int = 0

    @property
    def cache(self) -> float:
        """Return the bytes of the KV cache that the allocated blocks use."""
        if not self.lost:
            return max(0.0, self.parts.kv)
        return float(self.engines * self.blocks * self.block)

    @property
    def unused(self) -> float:
        """Return the bytes that stay free: the margin, and the rounded-off blocks."""
        if self.pools:
            return max(0.0, self.parts.free)
        spare = max(0.0, self.parts.margin) + max(0.0, self.parts.kv) - self.cache
        return max(0.0, spare - self.states)

    @property
    def graphs(self) -> float:
        """Return the bytes that stay for graphs: the states may need a part of them."""
        spare = max(0.0, self.parts.margin) + max(0.0, self.parts.kv) - self.cache
        return max(0.0, self.parts.graphs - max(0.0, self.states - spare))

    @property
    def tokens(self) -> int:
        """Return the number of tokens that fit in the KV cache: the longest context."""
        return self.tokens_beside(1)

    def tokens_beside(self, requests: int) -> int:
        """Return the tokens that fit in the cache with the states of these requests."""
        tokens = self.blocks * self.block_tokens
        if self.page is None:
            return tokens
        pages = tokens // self.page.tokens - requests * self.page.states
        return max(0, pages // self.page.groups) * self.page.tokens

    def requests(self, length: int) -> float:
        """Return the requests of this length that fit in the cache, as engines log it."""
        if self.page is None:
            return sizing.concurrency(self.blocks, length)
        return self.blocks * self.block_tokens / self.page.tokens / self.page.blocks(length)


@dataclass(frozen=True)
class FitRow:
    """One number of cards at one data type.

    GiB per card; ``concurrency`` counts requests of the requested length; ``longest_context`` is
    what both the cache and the model allow.
    """

    n: int
    dtype: str
    fits: bool
    reason: Message
    weights_gib_per_card: float | None = None
    activations_gib_per_card: float | None = None
    graphs_gib_per_card: float | None = None
    kv_gib_per_card: float | None = None
    states_gib_per_card: float | None = None
    kv_bytes_per_token: int | None = None
    kv_blocks: int | None = None
    concurrency: float | None = None
    longest_context: int | None = None


@dataclass(frozen=True)
class FitTable:
    """Rows by data type, then cards.

    ``smallest_n`` is of the first data type; None: it fits nowhere.
    """

    rows: tuple[FitRow, ...]
    smallest_n: int | None


def divide_card(
    model: Model, cards: int, dtype: str, card_bytes: float, ask: ServingDemand, rules: MemoryRules
) -> CardMemory | None:
    """Return the memory of one of ``cards`` after the engine's launch.

    Return None when the model's sizes are not known.
    """
    weights = sizing.weight_bytes_per_card(model, cards, dtype)
    kv_bytes = sizing.KV_BYTES.get(ask.kv_dtype, 2)
    block = sizing.block_bytes(model, cards, kv_bytes, rules=ask.cache)
    if weights is None or block is None:
        return None
    weights += ask.more_weights
    block += ask.more_block
    activations = 0.0
    if rules.profile_run:
        activations = sizing.activation_bytes(model, ask.profile_tokens, cards)
    free = card_bytes - weights - activations
    if rules.fixed_share is not None:
        utilization, reserved = rules.fixed_share, 0.0
    else:
        utilization, reserved = ask.utilization, ask.reserved
    if ask.pools:
        # no cache; what is usable is for graphs, as many as are captured
        parts = sizing.Split(free, free, 0.0, 0.0)
        return CardMemory(card_bytes, weights, activations, parts, block, 0, pools=True)
    parts = sizing.split(free, utilization, reserved, ask.eager)
    # a model without attention has no cache, and so no limit by it
    if not block:
        return CardMemory(card_bytes, weights, activations, parts, block, ask.max_model_len)
    blocks = sizing.count_blocks(parts.kv, block, rules, ask.blocks_step)
    lost = sizing.count_blocks(parts.kv, block, rules, 1) - blocks
    states = 0
    if ask.cache.compact_states:
        states = compact_bytes(model, ask.max_num_seqs, cards)
    engines = model.stages if rules.virtual_engines else 1
    page = page_of(model, cards, kv_bytes, ask.cache)
    if page is not None:
        found = CardMemory(card_bytes, weights, activations, parts, block, 0, states=states)
        # the card with its cache in blocks that keys and states share
        size = page.size + ask.more_block * page.tokens // BLOCK
        pages = sizing.count_blocks(found.parts.kv, size, rules)
        counted = ask.cache.state_blocks is not None and ask.cache.state_blocks.counted
        tokens = page.tokens if counted else BLOCK
        divided = replace(
            found,
            block=size * tokens // page.tokens,
            blocks=pages * page.tokens // tokens,
            block_tokens=tokens,
            page=page,
        )
        return replace(divided, kept=_served(divided, ask) * page.states * page.size)
    return CardMemory(
        card_bytes,
        weights,
        activations,
        parts,
        block,
        blocks // engines,
        lost=lost,
        states=states,
        engines=engines,
    )


def _served(found: CardMemory, ask: ServingDemand) -> int:
    """Return the requests of the requested length that run at the same time."""
    return min(ask.max_num_seqs, int(found.requests(ask.max_model_len)))


def fit_each(
    model: Model,
    card_bytes: float,
    cards: Iterable[int],
    dtypes: Sequence[str],
    divided: Callable[[int, str], tuple[ServingDemand, MemoryRules]],
) -> FitTable:
    """Return a row for each data type and number of cards.

    ``divided`` returns how the engine would divide each of that number of cards.

    The KV cache type is that of fp8 rows, others use "auto". Raises LaunchError (USAGE) as
    ``divided`` does; its other errors are a row's reason.
    """
    numbers = sorted(set(cards))
    rows = tuple(_row(model, n, dtype, card_bytes, divided) for dtype in dtypes for n in numbers)
    return FitTable(rows, _smallest(rows, dtypes[0]))


def _smallest(rows: Iterable[FitRow], dtype: str) -> int | None:
    return min((row.n for row in rows if row.fits and row.dtype == dtype), default=None)


def _row(
    model: Model,
    n: int,
    dtype: str,
    card_bytes: float,
    divided: Callable[[int, str], tuple[ServingDemand, MemoryRules]],
) -> FitRow:
    if not sizing.divides(model, n):
        if model.heads and model.heads % n:
            return FitRow(n, dtype, False, message("fit.heads", heads=model.heads, n=n))
        return FitRow(n, dtype, False, message("fit.kv_heads", heads=model.kv_heads, n=n))
    try:
        ask, rules = divided(n, dtype)
    except LaunchError as error:
        if error.exit_code == ExitCode.USAGE:
            raise
        return FitRow(n, dtype, False, error.text)
    if dtype != "fp8":
        ask = replace(ask, kv_dtype="auto")
    found = divide_card(model, n, dtype, card_bytes, ask, rules)
    if found is None:
        return FitRow(n, dtype, False, message("fit.unknown", model=model.name))
    fits, reason = verdict(found, ask)
    tight = too_tight(found, ask) if fits else None
    if tight is not None:
        fits, reason = False, tight
    longest = ask.max_model_len
    if not found.pools:
        longest = min(found.tokens, model.max_position_embeddings or found.tokens)
    return FitRow(
        n=n,
        dtype=dtype,
        fits=fits,
        reason=reason,
        weights_gib_per_card=in_gib(found.weights),
        activations_gib_per_card=in_gib(found.activations),
        graphs_gib_per_card=in_gib(found.graphs),
        kv_bytes_per_token=found.block // found.block_tokens,
        kv_gib_per_card=in_gib(found.cache - found.kept),
        states_gib_per_card=in_gib(found.states + found.kept),
        kv_blocks=found.tokens_beside(_served(found, ask)) // found.block_tokens,
        concurrency=None if found.pools else found.requests(ask.max_model_len),
        longest_context=longest,
    )


def verdict(found: CardMemory, ask: ServingDemand) -> tuple[bool, Message]:
    """Return whether the engine starts, by its own rule, and the reason.

    The rule: the cache must have room for one request of max_model_len.
    """
    gib = {"weights": f"{in_gib(found.weights):.1f}", "card": f"{in_gib(found.card):.1f}"}
    if found.weights >= found.card:
        return False, message("fit.weights", **gib)
    if found.pools and found.parts.free > 0:
        return True, message("fit.pools")
    if found.blocks == 0:
        used = f"{in_gib(found.weights + found.activations):.1f}"
        return False, message("fit.no_cache", used=used, card=gib["card"])
    if found.tokens < ask.max_model_len:
        return False, message("fit.short", tokens=found.tokens, length=ask.max_model_len)
    times = found.requests(ask.max_model_len)
    if times < ask.max_num_seqs:
        return True, message(
            "fit.fits_some", times=f"{times:.1f}", length=ask.max_model_len, most=ask.max_num_seqs
        )
    return True, message("fit.fits", times=f"{times:.0f}", length=ask.max_model_len)


def serves(found: CardMemory, ask: ServingDemand) -> bool:
    """Return True if the engine starts and has room to work."""
    fits, _ = verdict(found, ask)
    return fits and too_tight(found, ask) is None


def too_tight(found: CardMemory, ask: ServingDemand) -> Message | None:
    """Return a sentence when the engine would come up and have no room to work.

    Return None when it has.

    The rule counts weights, activations and one request against nine tenths of the card. It is
    assumed; public placements agree (Mixtral-8x7B on two Gaudi2 cards, Llama-3.1-405B on eight
    Gaudi3 but not eight Gaudi2).
    """
    spare = found.card - found.weights - found.activations - found.cache
    if found.states > max(0.0, spare):
        return message(
            "fit.states",
            requests=ask.max_num_seqs,
            states=f"{in_gib(found.states):.1f}",
            left=f"{in_gib(max(0.0, spare)):.1f}",
        )
    request = 0.0 if found.pools else found.block * ask.max_model_len / found.block_tokens
    needed = found.weights + found.activations + request
    if needed <= MOST_OF_A_CARD * found.card:
        return None
    used, card = f"{in_gib(needed):.1f}", f"{in_gib(found.card):.1f}"
    return message("fit.tight", length=ask.max_model_len, used=used, card=card)


def fit_weights_only(
    model: Model,
    cores: int,
    cards: Iterable[int] | None,
    dtypes: Sequence[str],
    core_gb: int = NEURON_CORE_GB,
) -> FitTable:
    """Return rows for NeuronCores by weights alone.

    As in the public table for Llama-2: decimal GB, no cache, no rule for heads. Without ``cards``:
    one core, the cores that the weights need, and all of the instance.
    """
    rows: list[FitRow] = []
    for dtype in dtypes:
        total = sizing.weight_bytes(model, dtype)
        if total is None:
            rows.append(FitRow(cores, dtype, False, message("fit.unknown", model=model.name)))
            continue
        needed = max(1, sizing.units(total / 1e9, 1, core_gb))
        for n in sorted(
            set(cards) if cards else {1, cores, *([needed] if needed <= cores else [])}
        ):
            words = {
                "total": f"{total / 1e9:.1f}",
                "cores": needed,
                "chips": -(-needed // _CORES_A_CHIP),
            }
            known = needed <= n <= cores
            if known:
                id = "fit.neuron_fits"
            elif n > cores:
                id = "fit.neuron_too_many"
            else:
                id = "fit.neuron_short"
            reason = message(id, **words, n=n, have=cores)
            rows.append(FitRow(n, dtype, known, reason, weights_gib_per_card=in_gib(total / n)))
    return FitTable(tuple(rows), _smallest(rows, dtypes[0]))
