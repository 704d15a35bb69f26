"""The inputs of a plan: options, machine, engine and model, each read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.buckets.warmup_time import FILE_NAME, read_measured
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.detect import Detect, Installed
from gaudi_launch.core.engines.introspect import InstalledBuckets
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.chosen_engine import choose_engine
from gaudi_launch.core.launch.launch_request import read_options
from gaudi_launch.core.launch.machine import LaunchMachine
from gaudi_launch.core.launch.model_needs import Provision, look
from gaudi_launch.core.launch.saved_plan import ComparedPlan
from gaudi_launch.core.launch.setup_steps import SetupStep
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.balanced_cards import with_balanced_cards
from gaudi_launch.core.planning.effects import with_overrides
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.model_name import name_warning
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan, refuse_options
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import check_support


@dataclass(frozen=True)
class Prepared:
    """All inputs of a plan, read once."""

    request: Request
    host: Host
    model: Model
    engine: Engine
    installed: Installed | None
    machine: str | None = None
    provision: Provision | None = None
    saved: ComparedPlan | None = None

    @property
    def steps(self) -> tuple[SetupStep, ...]:
        """Return the steps of serve before it starts the engine, also completed ones."""
        return self.provision.steps if self.provision else ()

    def check_engine(self) -> None:
        """Raise LaunchError where the interpreter of this machine lacks the engine."""
        registry.check_engine(self.engine, self.installed or detection.detect(self.request.python))

    def plan(self, placement: Placement | None = None) -> Plan:
        """Return the plan.

        ``placement`` for cards that were chosen and are reserved already.
        """
        measured = read_measured(state_dir() / FILE_NAME)
        engine, asked = self.engine, None
        if self.installed is not None:
            asked = InstalledBuckets(self.installed.python)
            engine = engine.asking(asked)
        with step("screen.step_plan"):
            made = make_plan(
                self.request, self.host, self.model, engine, placement, measured=measured
            )
        differs = () if asked is None or asked.difference is None else (asked.difference,)
        # the plan's model may have another path, of the folder that a conversion will write
        name, known = self.request.model, self.model
        if self.provision is not None:
            name, known = self.provision.facts.model, self.provision.known
        made = replace(made, warnings=(*name_warning(name, known), *made.warnings, *differs))
        if not registry.is_decided(self.request.engine, self.installed):
            python = self.installed.python if self.installed else "PATH"
            assumed = message("plan.no_engine", python=python, engine=made.engine.exact)
            made = replace(made, warnings=(assumed, *made.warnings))
        notes = self.provision.notes if self.provision else ()
        if self.saved is not None:
            notes = (*notes, *self.saved.differences(made))
        return replace(made, warnings=(*notes, *self._unmeasured(), *made.warnings))

    def _unmeasured(self) -> tuple[Message, ...]:
        """Return the note on files of fp8 that docker would mount as empty folders."""
        files = self.engine.measured_files(self.request)
        missing = ", ".join(each for each in files if not Path(each).exists())
        return (message("tgi.not_measured", missing=missing),) if missing else ()


def refuse_simulated(prepared: Prepared) -> None:
    """Raise LaunchError (USAGE) for simulated cards, which run on this machine only."""
    if prepared.engine.innermost.identity.simulated:
        raise LaunchError("simulated.here_only", ExitCode.USAGE)


def prepare(
    options: LaunchOptions,
    *,
    in_image: bool = False,
    secret_file: bool = False,
    detect: Detect = detection.detect,
) -> Prepared:
    """Read options, machine, engine and model.

    Nothing is written, and names suffice. ``in_image``: the engine is in an image, and no
    interpreter of this machine is queried for it (``detect``). ``secret_file``: a secret option
    that the engine reads from no variable goes into a file. Raises LaunchError.
    """
    request, name, saved = read_options(options, in_image=in_image, secret_file=secret_file)
    machine = LaunchMachine(name)
    known = cache(partial(known_model, request.model, must_exist=False))
    request, engine, installed = choose_engine(request, machine, known, detect, in_image=in_image)
    return replace(read_model(request, machine, engine, installed, known), saved=saved)


def read_model(
    request: Request,
    machine: LaunchMachine,
    engine: Engine,
    installed: Installed | None,
    known: Callable[[], Model],
) -> Prepared:
    """Return the inputs of the plan, with the model and the number of cards.

    Raises LaunchError for a model or options that the engine does not support.
    """
    host = machine.for_engine(needs_cards=engine.needs_cards)
    if request.tuning == "reference":
        # as with the start scripts, the engine fetches a hub ID by itself
        model, provision = with_overrides(known(), request.args), None
    else:
        request, model, provision = _provided(request, engine, installed, host, known)
    suited = engine.suited(model)
    return Prepared(request, host, model, suited, installed, machine.name, provision)


def _provided(
    request: Request,
    engine: Engine,
    installed: Installed | None,
    host: Host,
    known: Callable[[], Model],
) -> tuple[Request, Model, Provision]:
    """Return the request with its cards, the served model, and its needs."""
    with step("screen.step_model"):
        provision = look(request, host, engine, installed, known())
    engine = engine.suited(provision.known)
    # refuse unsupported options, before anything that could be missing for them
    refuse_options(request, host, provision.known, engine)
    supported = engine.innermost.support(provision.known, request.args, request.environment)
    check_support(supported, force=request.force)
    with step("screen.step_plan"):
        planned = provision.planned(provision.request_for(request))
        request = with_balanced_cards(request, host, planned, engine)
    if request.chosen_cards is not None:
        # files of fp8 depend on the number of cards
        provision = look(request, host, engine, installed, known())
    request = provision.request_for(request)
    model = provision.planned(request)
    if not engine.innermost.identity.simulated and Path(request.model).is_dir():
        # the folder that is served may be a converted one
        model = with_overrides(known_model(request.model), request.args)
    return request, model, provision
