"""The engine of a warm-up, with the list that its plan uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.engines import entries
from gaudi_launch.core.engines.introspect import InstalledBuckets
from gaudi_launch.core.engines.registry import labels
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.chosen_engine import for_engine, planned_engine
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.balanced_cards import with_balanced_cards
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.passthrough import parallel_sizes
from gaudi_launch.core.planning.placement import Placement, check_named
from gaudi_launch.core.planning.planner import Draft, buckets_of, draft, place, refuse_options
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import step_time_in
from gaudi_launch.core.planning.support_answer import check_support
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.step_time import StepTime


@dataclass(frozen=True)
class AskedEngine:
    """An engine with its question to the warm-up planner.

    ``identity`` is the name under which warm-ups are recorded; ``used`` the strategy and the
    buckets that a plan with the same options uses, None where its bucket file was not read;
    ``assumptions`` what no option states; ``notes`` the warnings of the plan. ``chooses_prompts``:
    the plan chose the prompts of one step.
    """

    name: str
    identity: str
    request: Request
    cards: int
    question: CoverageQuestion
    used: tuple[str, Buckets] | None
    assumptions: tuple[Message, ...]
    notes: tuple[Message, ...]
    step_time: StepTime
    chooses_prompts: bool = False

    @property
    def limits(self) -> EngineLimits:
        return self.question.limits

    @property
    def own(self) -> bool:
        """Return True if it builds its list itself, and reads none (TGI)."""
        return not self.question.family


def asked_engine(request: Request, model: Model, machine: str | None) -> AskedEngine:
    """Return the engine of these options.

    Where the machine has cards, settings and KV blocks are those of its plan. Raises
    LaunchError for an impossible one.
    """
    host = load(machine)

    engine, installed = planned_engine(
        request, lambda: model, lambda: product_of(host), here=machine is None
    )
    if installed is not None:
        engine = engine.asking(InstalledBuckets(installed.python))
    if engine.inner is not None:
        # Ray Serve has no warm-up: the inner engine does, in each replica
        engine.refuse(request, host, model)
        request = replace(
            request, cards=engine.cards(request), modules=None, replicas=None, target_ongoing=None
        )
        engine = engine.innermost
    name = engine.identity.label
    if entries.entry(request.engine).in_container:
        name = engine.identity.exact
    request = with_balanced_cards(for_engine(request, engine), host, model, engine)
    cards = request.cards or len(request.modules or ()) or engine.cards(request) or 1
    drawn = _draft(request, host, model, engine, cards)
    physical = drawn.memory.num_blocks
    question = _question(engine, drawn, physical)
    assumptions: list[Message] = []
    if request.engine == "auto" and installed is None:
        assumptions.append(message("warmup.assume_engine", engine=name))
    if request.chosen is not None and request.chosen[1] is not None:
        assumptions.append(request.chosen[1])
    if physical:
        assumptions.append(message("warmup.machine_blocks", blocks=physical, machine=host.origin))
    else:
        assumptions.append(message("warmup.assume_blocks", blocks=question.limits.num_blocks))
    supported = engine.support(model, request.args, request.environment)
    notes = [*check_support(supported, force=request.force), *drawn.warnings]
    used = buckets_of(engine, drawn.settings, drawn.context, notes, physical)
    return AskedEngine(
        name=name,
        identity=engine.identity.exact,
        request=drawn.context.request,
        cards=cards,
        question=question,
        used=used,
        assumptions=tuple(assumptions),
        notes=tuple(notes),
        step_time=step_time_in(drawn.context, engine),
        chooses_prompts=engine.chooses_prompts(drawn.context),
    )


def _question(engine: Engine, drawn: Draft, blocks: int | None) -> CoverageQuestion:
    """Return this engine's question to the planner.

    Raises LaunchError (USAGE) where no warm-up is known.
    """
    identity = engine.identity
    container = engine.in_container
    if engine.bucket_family is None:
        known = ", ".join(labels(lambda one: one.bucket_family is not None and one.inner is None))
        raise LaunchError(
            "warmup.unknown_engine", ExitCode.USAGE, found=identity.exact, known=known
        )
    found = engine.question(drawn.settings, drawn.context, blocks)
    if found is None:
        id = "warmup.list_unknown" if container else "warmup.not_warmed"
        if engine.pools(drawn.context.model, drawn.context.request.args):
            id = "warmup.prompts_only"
        raise LaunchError(id, ExitCode.USAGE, engine=identity.name)
    return found


def _draft(request: Request, host: Host, model: Model, engine: Engine, cards: int) -> Draft:
    """Return the decisions of a plan on this machine, busy cards included.

    Nothing is started.
    """
    refuse_options(request, host, model, engine)
    stages, copies = parallel_sizes(request.args) if engine.needs_cards else (1, 1)
    cards *= stages * copies
    if request.modules is not None:
        check_named(request.modules, cards)
    modules = host.modules or tuple(range(cards))
    placement = Placement(modules[:cards])
    if cards > len(modules):
        placement = place(request, host, engine)
    return draft(request, host, model, engine, placement)
