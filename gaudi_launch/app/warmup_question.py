"""Which engine a warm-up is asked for, with what its plan takes by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from gaudi_launch.host.records import Host
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.engine import Engine
    from gaudi_launch.planning.planner import Draft
    from gaudi_launch.planning.request import Request
    from gaudi_launch.warmup.buckets import Buckets
    from gaudi_launch.warmup.limits import EngineLimits, Question


@dataclass(frozen=True)
class AskedEngine:
    """An engine with its question to the warm-up planner.

    ``identity`` is the name under which warm-ups are remembered; ``used`` the strategy and the buckets that a plan
    of the same words takes, None where its bucket file was not read; ``ask`` what decides them, as
    `warmup.ask.ask_engine` takes it (None: this engine cannot be asked); ``notes`` what the plan warns of.
    """

    name: str
    identity: str
    request: Request
    cards: int
    question: Question
    used: tuple[str, Buckets] | None
    ask: tuple[str, dict[str, str], dict[str, Any]] | None
    notes: tuple[Message, ...]

    @property
    def limits(self) -> EngineLimits:
        return self.question.limits

    @property
    def own(self) -> bool:
        """Does it make its list itself, and take none from outside (TGI)?"""
        return not self.question.engine


def asked_engine(
    request: Request, model: Model, machine: str | None, blocks: int, assumptions: list[Message]
) -> AskedEngine:
    """The engine of these options. Where the machine has cards, settings and KV blocks are those of its plan;
    ``blocks`` (0: not given) wins over both. Raises LaunchError for what cannot be."""
    from gaudi_launch.cli.options import with_bucket_file
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.host.machine import load
    from gaudi_launch.planning.own_words import with_own_words
    from gaudi_launch.planning.planner import buckets_of

    container = registry.in_container(request.engine)
    wanted = not container and (request.python is not None or request.engine == "auto")
    installed = detect(request.python) if wanted else None
    host = load(machine)
    word = registry.name_for(request.engine, installed, model, lambda: host)
    engine = registry.find(word, installed, request.python)
    if (inside := getattr(engine, "inner", None)) is not None:
        # Ray Serve warms nothing up: the engine inside does, each replica for itself
        engine.refuse(request, host, model)
        request = replace(request, cards=engine.cards(request), modules=None, replicas=None, target_ongoing=None)
        engine = inside
    identity = engine.identity
    name = identity.exact if container else identity.label
    if request.engine == "auto" and installed is None:
        assumptions.append(message("warmup.assume_engine", engine=name))
    if request.tuning == "auto" and not container:
        request = with_own_words(request, engine.lacks)
    request = with_bucket_file(request, engine)
    cards = request.cards or len(request.modules or ()) or engine.cards(request) or 1
    drawn = _draft(request, host, model, engine, cards)
    physical = blocks or drawn.memory.num_blocks
    question = _question(engine, drawn, physical)
    if not blocks and physical:
        assumptions.append(message("warmup.machine_blocks", blocks=physical, machine=host.origin))
    elif not blocks:
        assumptions.append(message("warmup.assume_blocks", blocks=question.limits.num_blocks))
    notes = list(drawn.warnings)
    used = buckets_of(engine, drawn.settings, drawn.context, notes, physical)
    ask = None
    if used is not None and (asked := getattr(engine, "bucket_question", None)) is not None:
        key, _, env, arguments = asked(drawn.settings, drawn.context, physical)
        ask = (key, env, arguments)
    return AskedEngine(name, identity.exact, request, cards, question, used, ask, tuple(notes))


def _question(engine: Engine, drawn: Draft, blocks: int | None) -> Question:
    """What this engine asks the planner. Raises LaunchError (USAGE) where no warm-up is known."""
    from gaudi_launch.engines import registry
    from gaudi_launch.warmup.strategies import ENGINES

    identity = engine.identity
    container = registry.in_container(identity.name)
    if not container and identity.label not in ENGINES:
        known = ", ".join((*ENGINES, "tgi"))
        raise LaunchError("warmup.unknown_engine", ExitCode.USAGE, found=identity.exact, known=known)
    found = engine.question(drawn.settings, drawn.context, blocks)
    if found is None:
        id = "warmup.list_unknown" if container else "warmup.not_warmed"
        raise LaunchError(id, ExitCode.USAGE, engine=identity.name)
    return found


def _draft(request: Request, host: Host, model: Model, engine: Engine, cards: int) -> Draft:
    """What the plan decides on this machine, whoever holds its cards now: nothing is started."""
    from gaudi_launch.planning.placement import check_named
    from gaudi_launch.planning.plan import Placement
    from gaudi_launch.planning.planner import draft, place

    engine.refuse(request, host, model)
    if request.modules is not None:
        check_named(request.modules, cards)
    modules = host.modules or tuple(range(cards))
    placement = Placement(modules[:cards]) if cards <= len(modules) else place(request, host, engine)
    return draft(request, host, model, engine, placement)
