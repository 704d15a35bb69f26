"""Configurations of a search: what the options and the engine allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.host.accelerators import Accelerator
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import divides
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.lengths import BLOCK, round_up
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.load import Load
from gaudi_launch.extensions.recommend.carried import nodes_for, replicas_on

CARDS = (1, 2, 4, 8)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PROMPTS = (1, 2, 4, 8, 16)
# tokens of a step where a step mixes prompts and decoding; below it the plan's own 2048
BUDGETS = (2048, 4096, 8192, 16384)
# a list of buckets with more padding and fewer graphs, for a limit on the warm-up
COARSE = "0.5"
FP8_CACHE = "fp8_inc"
_KV_OPTION = "--kv-cache-dtype"
_PREFIX_OPTIONS = ("--enable-prefix-caching", "--no-enable-prefix-caching")
# upstream's switches of vllm/engine/arg_utils.py
_EXPERTS, _NO_EXPERTS = "--enable-expert-parallel", "--no-enable-expert-parallel"
# more stages than this only make bubbles
_MOST_STAGES = 8


@dataclass(frozen=True)
class Candidate:
    """One configuration of a replica.

    ``engine`` is its exact name, ``cards`` the tensor parallel size, ``pipeline`` the number of
    stages, each with that many cards; ``batch`` is that of one virtual engine, of which each stage
    makes one. ``hosts``: servers of one replica. ``experts``: over how many cards the experts
    are divided, 0 for a model without. Several replicas are separate engines, which is data
    parallelism without a common step. ``prompts`` and ``tokens`` are those of a step; ``padding``
    is a value of --padding-limit, "" for the engine's best list of buckets. ``kv_dtype``: the type
    of the KV cache by `Engine.cache_arguments`, "" for that of the plan.
    """

    engine: str
    dtype: str
    cards: int
    batch: int
    prompts: int
    tokens: int
    length: int
    prefix_caching: bool
    experts: int = 0
    pipeline: int = 1
    padding: str = ""
    kv_dtype: str = ""
    hosts: int = 1

    @property
    def world(self) -> int:
        """Return the number of cards of one replica: those of all stages."""
        return self.cards * self.pipeline

    @property
    def layout(self) -> str:
        """Return the cards of a replica, with stages as cards of a stage x stages: 8x2."""
        return layout_name(self.cards, self.pipeline)

    @property
    def is_last_resort(self) -> bool:
        """Return True for stages on one server: other speeds there are fitted."""
        return self.hosts == 1 < self.pipeline

    @property
    def needs_cluster(self) -> bool:
        """Return True for stages or several servers, which ``cluster`` starts."""
        return max(self.pipeline, self.hosts) > 1

    @property
    def splits_layers(self) -> bool:
        """Return True if each layer is divided over several servers."""
        return self.cards > self.world // self.hosts


def layout_name(cards: int, stages: int) -> str:
    """Return the name of a layout.

    >>> layout_name(16, 1), layout_name(8, 2)
    ('16', '8x2')
    """
    return f"{cards}x{stages}".removesuffix("x1")


@dataclass(frozen=True)
class SearchedEngine:
    """An engine of the search, with the request that has every given option.

    ``dtypes`` are the types of weights to try, ``refused`` the numbers of cards that the engine
    refuses. ``spreads``: one replica may be over several servers.
    """

    engine: Engine
    request: Request
    dtypes: tuple[str, ...]
    refused: frozenset[int] = frozenset()
    spreads: bool = False

    @property
    def name(self) -> str:
        """Return the engine's exact name."""
        return self.engine.identity.exact

    def caches_prefixes(self, model: Model) -> bool:
        """Return True where the given options cache prefixes of this model."""
        return self.engine.innermost.caches_prefixes(self.request, model)

    def experts(self, model: Model, cards: int) -> int:
        """Return over how many cards a plan divides the experts; 0: each expert over all.

        Both ways have the same predicted speed, because no published figure separates them, and
        the same memory; a plan's own way also divides what the number of cards does not. So the
        other one is only that of a given option.
        """
        if not model.moe or self.request.args.has(_NO_EXPERTS):
            return 0
        return cards

    def decides_experts(self) -> bool:
        """Return True if a given option says whether the experts are divided."""
        return self.request.args.has(_EXPERTS, _NO_EXPERTS)

    @property
    def is_mixed(self) -> bool:
        """Return True if a step mixes prompts, or parts of them, with decoding."""
        return self.engine.innermost.scheduling == "v1"


@dataclass(frozen=True)
class CardPool:
    """The cards of the answer.

    ``nodes`` None: as many nodes as the load needs.
    """

    accelerator: Accelerator
    cards_per_node: int
    nodes: int | None = None

    def most_replicas(self, cards: int) -> int | None:
        """Return how many replicas of ``cards`` cards there can be; None without a limit."""
        if self.nodes is None:
            return None
        return replicas_on(self.nodes, cards, self.cards_per_node)


@dataclass(frozen=True)
class SearchCase:
    """A model, its load and what may be varied.

    ``lengths`` are the longest prompt and answer of the traffic, ``longest`` its longest request
    (0: both together). ``context``: search the longest maximum of input plus output too. ``others``
    are engines to compare the answer with. ``staged``: also search pipeline stages. ``any_type``:
    the precision may be changed. ``most_batch``: a larger batch has no requests.
    """

    model: Model
    pool: CardPool
    engines: tuple[SearchedEngine, ...]
    load: Load
    lengths: tuple[int, int]
    cards: tuple[int, ...] = CARDS
    longest: int = 0
    context: bool = False
    notes: tuple[Message, ...] = field(default_factory=tuple)
    others: tuple[SearchedEngine, ...] = ()
    staged: bool = False
    any_type: bool = False
    most_batch: int = BATCHES[-1]

    def keeps_type(self, candidate: Candidate) -> bool:
        """Return True if a candidate does not change the precision of the weights."""
        return self.any_type or candidate.dtype == self.engine(candidate.engine).dtypes[0]

    def rank(self, candidate: Candidate) -> tuple[bool, bool, bool]:
        """Return what a candidate needs to be better for; a smaller one comes first.

        Another precision changes the answers. An older release lacks what the newest has: no load
        was published with two releases of vLLM, and a machine has one, so that none is faster by
        evidence. No figure is of stages on one server.
        """
        older = candidate.engine != self.engines[0].name
        return (not self.keeps_type(candidate), candidate.is_last_resort, older)

    def engine(self, name: str) -> SearchedEngine:
        """Return the engine of a candidate."""
        return next(each for each in (*self.engines, *self.others) if each.name == name)


def traffic_length(case: SearchCase) -> int:
    """Return the tokens of the longest request of the traffic, in blocks."""
    needed = round_up(case.longest or sum(case.lengths), BLOCK)
    longest = case.model.max_position_embeddings
    if not longest:
        return needed
    return min(needed, round_up(longest, BLOCK))


def lengths_of(case: SearchCase, request: Request) -> tuple[int, ...]:
    """Return the maximum lengths to try: the given one, else the traffic's.

    For the goal of long contexts also the model's, and what is between them.
    """
    if request.max_model_len is not None:
        return (request.max_model_len,)
    least = traffic_length(case)
    if not case.context:
        return (least,)
    most = max(least, case.model.max_position_embeddings or least)
    found = [most]
    while found[-1] > least:
        # an eighth apart
        found.append(max(least, found[-1] * 7 // 8 // BLOCK * BLOCK))
    return tuple(found)


def samples(case: SearchCase) -> Iterator[Candidate]:
    """Yield a candidate of each engine, type, layout and length.

    The longest first.
    """
    for searched in case.engines:
        for dtype in searched.dtypes:
            for cards, stages in layouts(case, searched):
                for length in lengths_of(case, searched.request):
                    plain = Candidate(
                        engine=searched.name,
                        dtype=dtype,
                        cards=cards,
                        batch=1,
                        prompts=1,
                        tokens=_budgets(case, searched, 1, 1, length)[0],
                        length=length,
                        prefix_caching=searched.caches_prefixes(case.model),
                        experts=searched.experts(case.model, cards),
                        pipeline=stages,
                        hosts=nodes_for(1, cards * stages, case.pool.cards_per_node),
                    )
                    yield from _variants(case, searched, plain)


def layouts(case: SearchCase, searched: SearchedEngine) -> Iterator[tuple[int, int]]:
    """Yield the cards of a stage and the stages, of each number of cards."""
    for total in case.cards:
        if total in searched.refused:
            continue
        if total > case.pool.cards_per_node and not searched.spreads:
            continue
        for stages in stages_of(case, searched, total):
            if divides(case.model, total // stages):
                yield total // stages, stages


def stages_of(case: SearchCase, searched: SearchedEngine, total: int) -> tuple[int, ...]:
    """Return the numbers of pipeline stages to try on ``total`` cards.

    A stage is a part of a server, or complete servers.
    """
    if not (case.staged and searched.engine.runs_stages(case.model)):
        return (1,)
    node = case.pool.cards_per_node
    found = [1]
    for stages in range(2, min(total, _MOST_STAGES) + 1):
        cards = total // stages
        if total % stages:
            continue
        # on one server any part will do
        if any((total <= node, node % cards == 0, cards % node == 0)):
            found.append(stages)
    return tuple(found)


def _variants(case: SearchCase, searched: SearchedEngine, plain: Candidate) -> Iterator[Candidate]:
    """Yield a sample with each type of KV cache and of prefix caching."""
    engine, request = searched.engine.innermost, searched.request
    caches = [""]
    in_fp8 = bool(engine.cache_arguments(case.model)) and case.pool.accelerator.has_fp8
    if in_fp8 and not request.args.has(_KV_OPTION):
        caches.append(FP8_CACHE)
    for kv_dtype in caches:
        made = replace(plain, kv_dtype=kv_dtype)
        yield made
        # without shared prefixes it only adds buckets
        if case.load.shared and _turns_prefixes(searched, on=not plain.prefix_caching):
            yield replace(made, prefix_caching=not plain.prefix_caching)


def _turns_prefixes(searched: SearchedEngine, *, on: bool) -> bool:
    """Return True if prefix caching may be turned: no given option decides it."""
    args = searched.request.args
    if args.has(*_PREFIX_OPTIONS):
        return False
    return searched.engine.innermost.prefix_arguments(on=on) is not None


def members(case: SearchCase, sample: Candidate) -> Iterator[Candidate]:
    """Yield candidates that differ in batch, prompts and tokens of a step."""
    searched = case.engine(sample.engine)
    batches = tuple(each for each in BATCHES if each < 2 * case.most_batch)
    if searched.request.max_num_seqs:
        batches = (searched.request.max_num_seqs,)
    for batch in batches:
        for prompts in _prompts(searched, batch):
            for tokens in _budgets(case, searched, batch, prompts, sample.length):
                yield replace(sample, batch=batch, prompts=prompts, tokens=tokens)


def _prompts(searched: SearchedEngine, batch: int) -> tuple[int, ...]:
    """Return the prompts per step to try."""
    given = searched.request.max_prefill_seqs
    if given is not None:
        return (given,)
    if not takes(searched.engine.innermost, "--max-prefill-seqs"):
        return (1,)
    return tuple(each for each in PROMPTS if each <= batch)


def _budgets(
    case: SearchCase, searched: SearchedEngine, batch: int, prompts: int, length: int
) -> tuple[int, ...]:
    """Return the tokens per step to try.

    An engine without mixed steps needs the longest prompt in one.
    """
    given = searched.request.max_num_batched_tokens
    if given is not None:
        return (given,)
    if not takes(searched.engine.innermost, "-t"):
        return (length,)
    if not searched.is_mixed:
        return (max(length, prompts * round_up(case.lengths[0], BLOCK)),)
    # more than all prompts of a step, or than the longest sequence, changes nothing
    useful = max(BUDGETS[0], min(prompts * length, BUDGETS[-1]), round_up(batch, BLOCK))
    found = [each for each in BUDGETS if batch <= each < 2 * useful]
    return tuple(found) or (round_up(batch, BLOCK),)


def on_other(case: SearchCase, candidate: Candidate, searched: SearchedEngine) -> list[Candidate]:
    """Return a candidate for another engine, also with one prompt per step."""
    if candidate.needs_cluster:
        # each engine has its own layouts
        return []
    found: list[Candidate] = []
    possible = _prompts(searched, candidate.batch)
    for prompts in dict.fromkeys((candidate.prompts, 1)):
        if prompts not in possible:
            prompts = possible[0]
        budgets = _budgets(case, searched, candidate.batch, prompts, candidate.length)
        tokens = candidate.tokens
        if tokens not in budgets:
            tokens = budgets[-1]
        made = replace(
            candidate,
            engine=searched.name,
            prompts=prompts,
            tokens=tokens,
            prefix_caching=searched.caches_prefixes(case.model),
            padding="",
            kv_dtype="",
        )
        if made not in found:
            found.append(made)
    return found


def with_fewer_graphs(case: SearchCase, candidate: Candidate) -> list[Candidate]:
    """Return variants of a candidate whose warm-up has fewer graphs.

    Coarser buckets pad more; without prefix caching there are no buckets of cached contexts.
    """
    searched = case.engine(candidate.engine)
    engine, request = searched.engine.innermost, searched.request
    found: list[Candidate] = []
    if (
        request.padding_limit is None
        and request.reduce is None
        and takes(engine, "--padding-limit")
    ):
        found.append(replace(candidate, padding=COARSE))
    if candidate.prefix_caching and _turns_prefixes(searched, on=False):
        found.append(replace(candidate, prefix_caching=False))
    return found


def takes(engine: Engine, option: str) -> bool:
    """Return True if the engine supports one of our options."""
    return option not in engine.lacks


def own_arguments(case: SearchCase, candidate: Candidate) -> tuple[str, ...]:
    """Return the engine's arguments of a candidate that are none of our options."""
    searched = case.engine(candidate.engine)
    engine = searched.engine.innermost
    found: tuple[str, ...] = ()
    if candidate.prefix_caching != searched.caches_prefixes(case.model):
        found = engine.prefix_arguments(on=candidate.prefix_caching) or ()
    if candidate.kv_dtype:
        found = (*found, *engine.cache_arguments(case.model))
    return found


def request_of(case: SearchCase, candidate: Candidate) -> Request:
    """Return the request of a candidate: given options and searched values."""
    searched = case.engine(candidate.engine)
    engine, request = searched.engine.innermost, searched.request
    inputs, outputs = ranges_of(case, candidate)
    several = takes(engine, "--max-prefill-seqs")
    return replace(
        request,
        cards=candidate.cards,
        modules=None,
        max_num_seqs=candidate.batch,
        max_prefill_seqs=candidate.prompts if several else request.max_prefill_seqs,
        max_num_batched_tokens=candidate.tokens if takes(engine, "-t") else None,
        max_model_len=candidate.length,
        input_range=inputs if takes(engine, "-i") else None,
        output_range=outputs if takes(engine, "-o") else None,
        padding_limit=candidate.padding or request.padding_limit,
        extra=(*request.extra, *own_arguments(case, candidate)),
    )


def ranges_of(case: SearchCase, candidate: Candidate) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ranges of input and output: given ones, else the traffic's."""
    request = case.engine(candidate.engine).request
    longest_input, longest_output = case.lengths
    inputs = request.input_range or (1, max(1, min(longest_input, candidate.length - 1)))
    return inputs, request.output_range or (1, max(1, min(longest_output, candidate.length)))
