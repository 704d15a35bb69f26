"""Divide a card's memory: weights, activations, graphs, cache, free. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.accelerators import Accelerator, identify
from gaudi_launch.core.models import card_memory, sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.effects import additions
from gaudi_launch.core.planning.engine import Context, Engine, Limits
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs
from gaudi_launch.core.planning.parse_ranges import share
from gaudi_launch.core.planning.passthrough import parallel_sizes, with_user_args, written
from gaudi_launch.core.planning.plan import Setting, variables_of
from gaudi_launch.core.planning.precision import fp8_cache, runs_fp8
from gaudi_launch.core.predict.shape import shape_of

_OFF = ("", "0", "false", "False")
_SHARE = "--gpu-memory-utilization"
# the type of the weights, and the options given with it
_Asked = tuple[str, card_memory.ServingDemand]


@dataclass(frozen=True)
class MemoryPlan:
    """GiB of one card by part (``Plan.memory``), the KV blocks, and the verdict.

    ``fits`` None: unknown, because the model's or the card's size is unknown; ``gib`` is empty
    then. ``message`` states why it does not fit, or its concurrency; ``remedies`` the options with
    which it would fit on as many cards. ``tight`` is an additional warning. ``lost_blocks`` of
    ``block_bytes`` each would also fit if the cache were not cut to multiples of ``blocks_step``. A
    block has ``block_tokens``.
    """

    gib: Mapping[str, float] = field(default_factory=dict)
    num_blocks: int | None = None
    lost_blocks: int = 0
    blocks_step: int = sizing.BLOCK
    block_bytes: int = 0
    block_tokens: int = sizing.BLOCK
    fits: bool | None = None
    message: Message | None = None
    tight: Message | None = None
    remedies: tuple[Message, ...] = ()

    @property
    def tokens(self) -> int | None:
        """Return the tokens of all blocks; None where their number is unknown."""
        return None if self.num_blocks is None else self.num_blocks * self.block_tokens


@dataclass(frozen=True)
class CardSet:
    """Equal cards that share a model.

    ``product`` is hl-smi's name or the driver's type; ``most`` are the cards of the machine (None:
    a full box of the product).
    """

    count: int
    product: str | None
    most: int | None = None

    @property
    def accelerator(self) -> Accelerator | None:
        """Return the product's facts; None for one without."""
        return identify(self.product, device_type=self.product)

    @property
    def larger(self) -> tuple[int, ...]:
        """Return the numbers of cards that a model may be divided over instead."""
        product = self.accelerator
        if product is None:
            return ()
        most = self.most or product.cards
        return tuple(count for count in (2, 4, 8) if self.count < count <= most)


@dataclass(frozen=True)
class ChosenSettings:
    """The settings of an engine; ``args``, the user's options, win.

    ``fp8``: the weights run in fp8.
    """

    settings: Sequence[Setting]
    args: EngineArgs = NO_ARGS
    fp8: bool = False


def memory_for(
    model: Model, limits: Limits, card_set: CardSet, engine: Engine, chosen: ChosenSettings
) -> MemoryPlan:
    """Return the memory of each card; none where an option's part is not known.

    Sources: `core.models.sizing`.
    """
    cards, accelerator = card_set.count, card_set.accelerator
    settings, args, fp8 = chosen.settings, chosen.args, chosen.fp8
    if accelerator is None or not cards or (more := additions(model, cards, args)).unknown:
        return MemoryPlan()
    decided = _DecidedOptions(settings, args)
    ask, rules = division(model, limits, settings, engine, args)
    dtype = type_on_card(model, settings, engine, args, fp8=fp8)
    elsewhere = _experts_elsewhere(model, cards, dtype, parallel_sizes(args)[1])
    ask = replace(ask, more_weights=more.weights - elsewhere, more_block=more.block)
    found = card_memory.divide_card(model, cards, dtype, accelerator.usable_bytes, ask, rules)
    if found is None:
        return MemoryPlan()
    fixed = decided.whole("--num-gpu-blocks-override")
    fits, reason = card_memory.verdict(found, ask)
    lost = found.lost
    if fixed:
        fits, reason = found.weights < found.card, message("fit.blocks_fixed", blocks=fixed)
        lost = 0
    made = MemoryPlan(
        gib={name: sizing.in_gib(size) for name, size in _parts(found).items()},
        blocks_step=ask.blocks_step,
        block_bytes=found.block,
        block_tokens=found.block_tokens,
        fits=fits,
        message=reason,
    )
    if fits:
        return replace(
            made,
            num_blocks=(fixed or 0) // found.engines or found.blocks or None,
            lost_blocks=lost,
            tight=card_memory.too_tight(found, ask),
        )
    # another data type or length makes a plan with a separate decode step
    other = replace(ask, blocks_step=limits.block_size)
    in_fp8 = None
    # the engines quantise full weights only: -d fp8 is refused for weights that are quantised on
    # disk
    if accelerator.has_fp8 and model.quantization is None:
        # the KV cache type of calibrated weights, where the card has 8-bit floats
        in_fp8 = ("fp8", replace(other, kv_dtype=fp8_cache(model, engine.calibration)))
    works = partial(_works, model, cards, found.card, rules)
    return replace(made, remedies=_remedies(found, (dtype, other), in_fp8, works, args))


def _experts_elsewhere(model: Model, cards: int, dtype: str, copies: int) -> float:
    """Return the bytes of experts that other copies have instead of a card.

    Copies share the experts, with and without expert parallelism
    (vllm/model_executor/layers/fused_moe/config.py FusedMoEParallelConfig.make). All weights are
    taken as of one type.
    """
    if copies == 1:
        return 0.0
    weights, shape = sizing.weight_bytes_per_card(model, cards, dtype), shape_of(model)
    if weights is None or shape is None:
        return 0.0
    return weights * shape.experts / (model.parameters or shape.parameters) * (1 - 1 / copies)


def _parts(found: card_memory.CardMemory) -> dict[str, float]:
    """Return the bytes of each part of a card; states only of a model that has them."""
    parts: dict[str, float] = {
        "weights": found.weights,
        "activations": found.activations,
        "graphs": found.graphs,
        "kv": found.cache - found.kept,
        "states": found.states + found.kept,
        "free": found.unused,
        "card": found.card,
    }
    if not parts["states"]:
        del parts["states"]
    return parts


def type_on_card(
    model: Model,
    settings: Sequence[Setting],
    engine: Engine,
    args: EngineArgs = NO_ARGS,
    *,
    fp8: bool = False,
) -> str:
    """Return the type that the weights have on the card, which decides their size."""
    dtype = _dtype(model, _DecidedOptions(settings, args), fp8=fp8)
    if dtype != model.quantization:
        return dtype
    # some versions dequantise the weights when they load them
    return engine.support(model, args, variables_of(settings)).expanded_to or dtype


def memory_in(context: Context, settings: Sequence[Setting], engine: Engine) -> MemoryPlan:
    """Return a card's memory as these settings of ``engine`` divide it."""
    request, model = context.request, context.model
    if request.unmodelled:
        return MemoryPlan()
    chosen = ChosenSettings(settings, request.args, runs_fp8(request, model))
    return memory_for(model, context.limits, cards_in(context), engine, chosen)


def cards_in(context: Context) -> CardSet:
    """Return the cards that share the model, of the machine's."""
    placement, cards = context.placement, context.host.cards
    names = (card.product or card.device_type for card in cards)
    product = next((name for name in names if name), None)
    return CardSet(placement.tensor, product, most=len(cards) // placement.parts)


def division(
    model: Model,
    limits: Limits,
    settings: Sequence[Setting],
    engine: Engine,
    args: EngineArgs = NO_ARGS,
) -> tuple[card_memory.ServingDemand, sizing.MemoryRules]:
    """Return how an engine with these settings divides any card."""
    decided, variables = _DecidedOptions(settings, args), variables_of(settings)
    ask = card_memory.ServingDemand(
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        longest_prompt=decided.whole("VLLM_PROMPT_SEQ_BUCKET_MAX")
        or min(limits.input_max, limits.max_model_len),
        utilization=decided.share(_SHARE, card_memory.ServingDemand.utilization),
        reserved=decided.share("VLLM_GRAPH_RESERVED_MEM", 0.1),
        eager=decided.has("--enforce-eager"),
        pools=engine.pools(model, args),
        kv_dtype=decided.word("--kv-cache-dtype") or engine.silent_kv_dtype(model, variables),
        blocks_step=decided.whole("VLLM_DECODE_BLOCK_BUCKET_STEP") or limits.block_size,
        cache=engine.support(model, args, variables).cache_rules,
    )
    return ask, engine.memory_rules(variables)


def _works(
    model: Model, cards: int, card_bytes: float, rules: sizing.MemoryRules, asked: _Asked
) -> bool:
    """Return True if a card has room for these weights and options."""
    dtype, ask = asked
    divided = card_memory.divide_card(model, cards, dtype, card_bytes, ask, rules)
    if not sizing.divides(model, cards) or divided is None:
        return False
    return card_memory.serves(divided, ask)


def _remedies(
    found: card_memory.CardMemory,
    now: _Asked,
    in_fp8: _Asked | None,
    works: Callable[[_Asked], bool],
    args: EngineArgs,
) -> tuple[Message, ...]:
    """Return the changes with which it fits on these cards.

    They are fp8, a larger share of the card, and a shorter context. An option is named as the user
    wrote it.
    """
    would = []
    if in_fp8 is not None and now[0] != "fp8" and works(in_fp8):
        would.append(message("fit.would_dtype"))
    usual = replace(now[1], utilization=card_memory.ServingDemand.utilization)
    if usual.utilization > now[1].utilization and works((now[0], usual)):
        option = written(args, "--memory-utilization", _SHARE)
        would.append(message("fit.would_share", option=option, share=usual.utilization))
    if found.tokens >= sizing.BLOCK and works((now[0], _shortened(now[1], found.tokens))):
        option = written(args, "-l")
        would.append(message("fit.would_length", option=option, length=found.tokens))
    return tuple(would)


def _shortened(ask: card_memory.ServingDemand, length: int) -> card_memory.ServingDemand:
    """Return the same request with a context of ``length`` tokens.

    Prompts and steps are reduced to it.
    """
    return replace(
        ask,
        max_model_len=length,
        longest_prompt=min(ask.longest_prompt or length, length),
        max_num_batched_tokens=min(ask.max_num_batched_tokens, length),
    )


def _dtype(model: Model, decided: _DecidedOptions, *, fp8: bool) -> str:
    """Return the type of the weights on the card.

    INC makes fp8 of them whatever they are on disk.
    """
    quantization = decided.word("--quantization") or decided.word("--quantize") or ""
    inc = quantization == "inc" or decided.word("QUANT_CONFIG")
    if fp8 or inc or "fp8" in (quantization, model.quantization):
        return "fp8"
    method = (quantization or model.quantization or "").removesuffix("_hpu")
    if method:
        return method
    asked = decided.word("--dtype") or "auto"
    if asked not in sizing.WEIGHT_BYTES:
        return "bfloat16"
    return asked


class _DecidedOptions:
    """The decided settings, by name; the user's options replace ours."""

    def __init__(self, settings: Sequence[Setting], args: EngineArgs) -> None:
        self._values: dict[str, str | None] = {}
        for setting in with_user_args(settings, args):
            if setting.kind == "option":
                name = setting.name.replace("_", "-")
            else:
                name = setting.name
            self._values[name] = setting.value

    def has(self, name: str) -> bool:
        return name in self._values and self._values[name] not in _OFF[1:]

    def word(self, name: str) -> str | None:
        return self._values.get(name)

    def share(self, name: str, default: float) -> float:
        return share(self._values.get(name), default)

    def whole(self, name: str) -> int | None:
        text = self._values.get(name) or ""
        if text.isascii() and text.isdigit() and len(text) < 12:
            return int(text) or None
        return None


_MIB_PER_GIB = 1024


def check_host_memory(context: Context, decisions: Decisions) -> None:
    """Refuse or warn when the weights on disk do not fit into the host's memory.

    Each rank loads its part, so all ranks of a machine together have the weights once
    (HabanaAI/vllm-fork@277a33cd9:vllm/model_executor/model_loader/loader.py load_model: the model
    of one rank is made on the load device). Other buffers are not counted. Raises LaunchError
    (MACHINE) for a machine that is too small, unless forced.
    """
    model, host, request = context.model, context.host, context.request
    needed = sizing.weight_bytes(model, model.quantization or model.dtype or "bfloat16")
    total = host.memory_total_mib
    if needed is None or total is None:
        return
    shown = f"{sizing.in_gib(needed):.1f}"
    if needed > total << 20:
        have = f"{total / _MIB_PER_GIB:.1f}"
        error = LaunchError("plan.host_memory", ExitCode.MACHINE, needed=shown, total=have)
        if not request.force:
            raise error
        decisions.warnings.append(error.text)
        return
    available = host.memory_available_mib
    if available is not None and needed > available << 20:
        decisions.warn(
            "plan.host_memory_low", needed=shown, available=f"{available / _MIB_PER_GIB:.1f}"
        )
