"""Seconds of one prefill or decode step, by part. Pure.

The formula takes numbers or numpy arrays, so that fitting evaluates all published figures at once.
Its form is physical (what is read, computed and sent), its constants are those of
`gaudi_launch.core.predict.constants`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gaudi_launch.core.predict.shape import Shape

Generation = Literal["gaudi2", "gaudi3", "cpu"]
Engine = Literal["static", "v0", "v1"]
# the generation of an engine without cards
PROCESSOR: Generation = "cpu"

# two all-reduces a layer, each of which sends a token's hidden values (2 bytes) twice: reduce, then
# gather
_ALL_REDUCES = 2
_LINK_BYTES = _ALL_REDUCES * 2 * 2
# seconds too few to count, so that one card divides nothing by zero
_NOTHING = 1e-15
# tokens of a prompt that no step divides
_NEVER_CHUNKED = 1e9
# from this many cards on, a launch over DeepSpeed was measured to cost milliseconds a step
LAUNCH_CARDS = 8


@dataclass(frozen=True)
class Setup:
    """The cards, precision and software that a model runs on.

    ``fused``: a step of a mixture reads only the experts that its tokens selected; ``gather``:
    where it reads all of them, up to this number of tokens it reads the selected ones.
    ``prompt_tokens``: tokens of the prompts that one step computes together; 0 where a step
    computes its prompts one at a time, as on cards.
    ``step_tokens``: the token budget of a step that mixes prompts and decoding (V1); 0 where none
    does, or unknown.
    ``hosts``: servers over which these cards are divided evenly.
    """

    generation: Generation
    cards: int
    math: Literal["bf16", "fp8"]
    weight_bytes: float
    kv_bytes: float
    engine: Engine
    fused: bool = True
    prompt_tokens: int = 0
    step_tokens: int = 0
    hosts: int = 1
    gather: int = 0


@dataclass(frozen=True)
class Rates:
    """The constants that apply to one setup, each a number or an array.

    Zero where a term does not apply. Seconds, bytes per second and operations per second;
    ``*_share`` are fractions of the peaks.
    """

    peak: Any
    peak_bf16: Any
    bandwidth: Any
    pair: Any
    prefill_share: Any
    decode_share: Any
    attention_share: Any
    bandwidth_share: Any
    fixed: Any
    layer: Any
    latent_layer: Any
    expert_layer: Any
    state_layer: Any
    state_token: Any
    dispatch: Any
    quantised: Any
    masked: Any
    latency: Any
    launch: Any
    launch_batch: Any
    saturation: Any
    narrow: Any
    multi_head: Any
    host: Any
    host_sequence: Any


@dataclass(frozen=True)
class Amounts:
    """The costs of a step of one model on one card of a setup, numbers or arrays.

    ``weights`` and ``experts`` are bytes, ``kv`` bytes per token of context, ``operations`` of one
    decoded token, ``prefill_operations`` of one prompt token; ``attention`` of one pair of tokens,
    ``link`` bytes of one token on each link; ``rounds`` of messages in one all-reduce. ``states``
    are layers with a state on each card, ``routed`` bytes of the hidden values of one token in all
    layers with experts, ``chunk`` the tokens of a prompt that one step computes.
    """

    weights: Any
    experts: Any
    share: Any
    gathered: Any
    gather: Any
    kv: Any
    operations: Any
    prefill_operations: Any
    attention: Any
    link: Any
    layers: Any
    inner: Any
    rounds: Any
    states: Any
    routed: Any
    routers: Any
    chunk: Any
    cards: Any


@dataclass(frozen=True)
class Parts:
    """Seconds of a step by what they are spent on: numbers or arrays."""

    weights: Any
    kv: Any
    arithmetic: Any
    links: Any
    host: Any

    @property
    def total(self) -> Any:
        """Return the seconds of the complete step."""
        return self.weights + self.kv + self.arithmetic + self.links + self.host

    def times(self, count: Any) -> Parts:
        """Return the parts of ``count`` such steps."""
        return Parts(*(part * count for part in vars(self).values()))

    def plus(self, other: Parts) -> Parts:
        """Return the sum, part by part."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return Parts(*(one + more for one, more in both))


def _term(name: str, *, applies: object) -> str:
    """Return the name of a constant; "" where its term does not apply."""
    if not applies:
        return ""
    return name


def rate_names(setup: Setup, shape: Shape) -> dict[str, str]:
    """Return the name of the constant for each field of `Rates`.

    Return "" where the term does not apply.
    """
    card, several = setup.generation, setup.cards > 1
    served = setup.engine != "static"
    latency, many = "latency.static", setup.cards >= LAUNCH_CARDS
    if served:
        latency, many = f"latency.served.{card}", False
    experts, routed = "layer.experts", shape.experts and served
    if served:
        experts = "layer.mixture"
    return {
        "peak": f"peak.{card}.{setup.math}",
        "peak_bf16": f"peak.{card}.bf16",
        "bandwidth": f"bandwidth.{card}",
        "pair": f"pair.{card}",
        "prefill_share": f"prefill.{card}.{setup.math}",
        "decode_share": f"decode.{card}",
        "attention_share": "attention",
        "bandwidth_share": f"read.{card}",
        "fixed": f"fixed.{card}",
        "layer": f"layer.{card}",
        "latent_layer": _term("layer.latent", applies=shape.latent),
        "expert_layer": _term(experts, applies=shape.experts and (served or not setup.fused)),
        "state_layer": _term("layer.state", applies=shape.state_layers),
        "state_token": _term("state.token", applies=shape.state_layers),
        "dispatch": _term("dispatch", applies=routed),
        "quantised": _term("dispatch.fp8", applies=routed and setup.math == "fp8"),
        "masked": _term("attention.masked", applies=setup.step_tokens),
        "latency": _term(latency, applies=several),
        "launch": _term(f"launch.{card}", applies=many),
        "launch_batch": "launch.batch",
        # short prompts do not fill a card's matrix engine; a processor has none
        "saturation": _term("saturation", applies=card != "cpu"),
        "narrow": "narrow",
        "multi_head": _term("kv.multi_head", applies=shape.multi_head),
        "host": _term(f"host.{setup.engine}", applies=served),
        "host_sequence": _term("host.sequence", applies=served),
    }


def rates_of(setup: Setup, shape: Shape, constants: Mapping[str, float]) -> Rates:
    """Return the constants that apply to ``setup``."""
    names = rate_names(setup, shape)
    return Rates(**{field: constants[name] if name else 0.0 for field, name in names.items()})


def amounts_of(setup: Setup, shape: Shape) -> Amounts:
    """Return the costs of a step of ``shape`` on one card of ``setup``."""
    cards = setup.cards
    read = shape.body + shape.head
    # without the fused operator every expert computes every token
    share = shape.share if setup.fused else 1.0
    body = shape.body + shape.experts * share
    link = _LINK_BYTES * shape.hidden * shape.layers * _link_share(setup)
    return Amounts(
        weights=read * setup.weight_bytes / cards,
        experts=shape.experts * setup.weight_bytes / cards,
        share=share,
        gathered=shape.share,
        gather=setup.gather,
        kv=shape.kv_elements(cards) * setup.kv_bytes,
        operations=2 * (body + shape.head) / cards,
        prefill_operations=2 * body / cards,
        # causal: half of the pairs are computed
        attention=2 * shape.attention_layers * shape.width / cards,
        link=link,
        layers=shape.layers,
        inner=shape.inner / cards,
        rounds=_rounds(setup),
        states=shape.state_layers,
        routed=shape.hidden * shape.routes,
        routers=shape.expert_layers or shape.layers * bool(shape.experts),
        chunk=setup.step_tokens or _NEVER_CHUNKED,
        cards=cards,
    )


def _link_share(setup: Setup) -> float:
    """Return the part of an all-reduce's bytes that one link carries.

    Each pair of cards has separate ports, so a card sends to the others simultaneously. Over
    servers, cards of one place agree on their part by the ports that leave the server, which are
    as fast together as those of a pair (HabanaAI/HCL@54fed3a: 21 of 24 ports internal, three for
    each pair). That the two follow each other is assumed.
    """
    if setup.cards < 2:
        return 0.0
    between_hosts = (setup.hosts - 1) / setup.hosts
    return (1 + between_hosts) * setup.hosts / setup.cards


def _rounds(setup: Setup) -> float:
    """Return the rounds of an all-reduce; each doubles the cards that agree.

    Assumed, as it predicts figures of eight cards from those of fewer. Figures of servers show no
    growth from two to eight cards: `latency.served.*` applies to all of these. Assumed too: a round
    between servers takes as long as one within them.
    """
    if setup.cards < 2:
        return 1.0
    if setup.engine != "static":
        return 2.0 if setup.hosts > 1 else 1.0
    return math.log2(setup.cards)


def decode(amounts: Amounts, rates: Rates, batch: Any, context: Any) -> Parts:
    """Return the parts of a step that adds one token to each of ``batch`` sequences.

    Each sequence has ``context`` tokens.
    """
    speed = rates.bandwidth * rates.bandwidth_share
    kv = batch * context * amounts.kv * (1 + rates.multi_head) / speed
    arithmetic = (
        batch * amounts.operations * _narrow(amounts, rates) / (rates.peak * rates.decode_share)
    )
    waiting, launching = _between_cards(amounts, rates, batch)
    return Parts(
        weights=_weights(amounts, rates, batch),
        kv=kv,
        arithmetic=arithmetic,
        links=batch * amounts.link / rates.pair + waiting,
        host=_fixed(amounts, rates) + launching + rates.host + rates.host_sequence * batch,
    )


def prefill(amounts: Amounts, rates: Rates, prompts: Any, tokens: Any) -> Parts:
    """Return the parts of a step that reads ``prompts`` prompts of ``tokens`` tokens.

    Arithmetic overlaps with reading weights and with launching: the larger of the two decides, and
    both count where they are alike (root of the sum of squares).
    """
    count = prompts * tokens
    narrow = _narrow(amounts, rates) * (1 + rates.saturation / count)
    computing = count * amounts.prefill_operations * narrow / (rates.peak * rates.prefill_share)
    # tokens are copied to their experts and back, and states advance token by token
    dispatching = amounts.routed * rates.dispatch * (1 + rates.quantised)
    advancing = amounts.states * rates.state_token / amounts.cards
    computing = computing + count * (dispatching + advancing)
    reading = _weights(amounts, rates, count)
    waiting, together_launched = _between_cards(amounts, rates, prompts)
    launching = _fixed(amounts, rates) + together_launched
    floor = reading + launching + waiting
    together = (computing**2 + floor**2) ** 0.5
    part = floor / together
    attention = count * tokens * amounts.attention / (rates.peak_bf16 * rates.attention_share)
    # chunks after the first one attend to the ones before them by a mask, not by the causal kernel
    # the tokens after the first chunk, numbers or arrays
    beyond = (tokens - amounts.chunk + abs(tokens - amounts.chunk)) / 2
    later = 1 - (amounts.chunk / (amounts.chunk + beyond)) ** 2
    attention = attention * (1 + rates.masked * later)
    return Parts(
        weights=reading * part,
        kv=attention * 0.0,
        arithmetic=computing**2 / together + attention,
        links=waiting * part + count * amounts.link / rates.pair,
        host=launching * part,
    )


def _weights(amounts: Amounts, rates: Rates, tokens: Any) -> Any:
    share = amounts.share + (amounts.gathered - amounts.share) * (tokens <= amounts.gather)
    touched = 1 - (1 - share) ** tokens
    return (amounts.weights + amounts.experts * touched) / (rates.bandwidth * rates.bandwidth_share)


def _narrow(amounts: Amounts, rates: Rates) -> Any:
    """Return the extra time where a card's part of the MLP has few columns."""
    return 1 + rates.narrow / amounts.inner


def _between_cards(amounts: Amounts, rates: Rates, batch: Any) -> tuple[Any, Any]:
    """Return the waits for messages between cards and for launching on them.

    They overlap: the larger one decides, and both count where they are alike (root of the sum of
    squares).
    """
    messages = _ALL_REDUCES * amounts.layers * rates.latency * amounts.rounds
    launch = rates.launch / (1 + batch / rates.launch_batch)
    together = (messages**2 + launch**2) ** 0.5 + _NOTHING
    return messages**2 / together, launch**2 / together


def _fixed(amounts: Amounts, rates: Rates) -> Any:
    return (
        rates.fixed
        + amounts.layers * (rates.layer + rates.latent_layer)
        + (amounts.states * rates.state_layer + amounts.routers * rates.expert_layer)
    )
