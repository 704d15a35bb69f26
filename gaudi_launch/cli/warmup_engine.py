"""Which engine a warm-up is asked for, with its limits: on a known machine those of the plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from gaudi_launch.host.records import Host
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.engine import Context, Engine
    from gaudi_launch.planning.plan import EngineIdentity, Setting
    from gaudi_launch.planning.planner import Draft
    from gaudi_launch.planning.request import Request
    from gaudi_launch.warmup.buckets import Buckets
    from gaudi_launch.warmup.limits import EngineLimits

_FORKS = ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1")
_CONTIGUOUS = "VLLM_CONTIGUOUS_PA"


@dataclass(frozen=True)
class AskedEngine:
    """An engine with its limits.

    ``identity`` is the name under which warm-ups are remembered; ``own`` the strategy and the list of an engine
    that takes none from outside (TGI), None for the others; ``notes`` what its plan warns of.
    """

    name: str
    identity: str
    request: Request
    cards: int
    limits: EngineLimits
    with_limit: bool
    own: tuple[str, Buckets] | None
    notes: tuple[Message, ...]


def asked_engine(
    request: Request, model: Model, machine: str | None, blocks: int, assumptions: list[Message]
) -> AskedEngine:
    """The engine of these options. Where the machine has cards, settings and KV blocks are those of its plan;
    ``blocks`` (0: not given) wins over both. Raises LaunchError for what cannot be."""
    from gaudi_launch.engines import fork_auto, registry
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.host.machine import load
    from gaudi_launch.planning.own_words import with_own_words
    from gaudi_launch.warmup.limits import as_limits

    container = registry.in_container(request.engine)
    wanted = not container and (request.python is not None or request.engine == "auto")
    installed = detect(request.python) if wanted else None
    engine = registry.find(registry.name_for(request.engine, installed, model), installed, request.python)
    name = _name(engine.identity)
    if request.engine == "auto" and installed is None:
        assumptions.append(message("warmup.assume_engine", engine=name))
    if request.tuning == "auto" and not container:
        request = with_own_words(request, engine.lacks)
    host = load(machine)
    cards = request.cards or len(request.modules or ()) or engine.cards(request) or 1
    # the forks' settings say nothing more about their warm-up than the lengths do
    drawn = None if not host.cards and name in _FORKS else _draft(request, host, model, engine, cards)
    context = drawn.context if drawn is not None else _context(request, host, model, engine, cards)
    settings = drawn.settings if drawn is not None else ()
    physical = blocks or (drawn.memory.num_blocks if drawn is not None else None)
    own = _own_list(engine, settings, context, physical) if container else None
    limits = as_limits(_limits(name, context, settings, physical, own))
    if not blocks and physical:
        assumptions.append(message("warmup.machine_blocks", blocks=physical, machine=host.origin))
    elif not blocks:
        assumptions.append(message("warmup.assume_blocks", blocks=limits.num_blocks))
    # as in a plan: what the extension is not known to understand is not sent
    with_limit = fork_auto.knows_limit(engine.identity.facts)
    identity = f"{engine.identity.name}@{engine.identity.version}"
    notes = drawn.warnings if drawn is not None else ()
    return AskedEngine(name, identity, request, cards, limits, with_limit, own, notes)


def _name(identity: EngineIdentity) -> str:
    """The engine as its users write it. Raises LaunchError (USAGE) where no warm-up is known."""
    from gaudi_launch.engines import registry
    from gaudi_launch.warmup.strategies import ENGINES

    whole = f"{identity.name}@{identity.version}"
    if registry.in_container(identity.name):
        return whole
    # buckets of vllm-gaudi are those of its main branch, whatever release is installed
    name = next((word for word in (whole, identity.version, identity.name) if word in ENGINES), None)
    if name is None:
        raise LaunchError("warmup.unknown_engine", ExitCode.USAGE, found=whole, known=", ".join((*ENGINES, "tgi")))
    return name


def _draft(request: Request, host: Host, model: Model, engine: Engine, cards: int) -> Draft:
    """What the plan decides on this machine, whoever holds its cards now: nothing is started."""
    from gaudi_launch.planning.plan import Placement
    from gaudi_launch.planning.planner import draft, place

    engine.refuse(request, host, model)
    modules = host.modules or tuple(range(cards))
    placement = Placement(modules[:cards]) if cards <= len(modules) else place(request, host, engine)
    return draft(request, host, model, engine, placement)


def _context(request: Request, host: Host, model: Model, engine: Engine, cards: int) -> Context:
    from gaudi_launch.planning.engine import Context
    from gaudi_launch.planning.plan import Placement

    return Context(request, host, model, Placement(tuple(range(cards))), engine.limits(request, host, model))


def _own_list(
    engine: Engine, settings: tuple[Setting, ...], context: Context, blocks: int | None
) -> tuple[str, Buckets]:
    found = engine.buckets(settings, context, blocks)
    if found is None:
        raise LaunchError("warmup.list_unknown", ExitCode.USAGE, engine=engine.identity.name)
    return found


def _limits(
    name: str,
    context: Context,
    settings: tuple[Setting, ...],
    blocks: int | None,
    own: tuple[str, Buckets] | None,
) -> dict[str, Any]:
    """`EngineLimits` as a mapping; of the blocks only what is known."""
    from gaudi_launch.engines import fork_auto, gaudi_buckets

    request = context.request
    said = next((s.value or "" for s in settings if s.name == _CONTIGUOUS), request.environment.get(_CONTIGUOUS))
    default = "false" if name == "vllm-gaudi" else "true"
    contiguous = (said or default).lower() in ("true", "1") and "--enable-prefix-caching" not in request.extra
    if name == "vllm-gaudi":
        return asdict(gaudi_buckets.planned_limits(context, contiguous, blocks))
    if own is not None:
        # the list ends at the cache, or at the rows of a full batch; the paged router fills its budget with as many
        # prompts as there are (backends/v3/src/queue.rs), the padded one with as many as it warms up
        paged = own[0] == "exponential"
        prompts = context.limits.max_num_seqs if paged else context.limits.max_num_prefill_seqs
        blocks = max(bucket[2] for bucket in own[1].decode)
        changed = {"num_blocks": blocks, "max_num_prefill_seqs": prompts, "contiguous_pa": contiguous}
        return {**asdict(context.limits), **changed}
    planned = fork_auto.planned_limits(context, contiguous, blocks)
    return {**asdict(planned), "max_num_prefill_seqs": request.max_prefill_seqs or 1}
