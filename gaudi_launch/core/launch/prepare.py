"""The inputs of a plan, read once: request, machine, interpreter, model."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import cache_dir, machine_root, state_dir
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.options import LaunchOptions, to_request
from gaudi_launch.core.launch.saved_plan import ComparedPlan, merged
from gaudi_launch.core.models.config import looks_like_hub_id

if TYPE_CHECKING:
    from gaudi_launch.core.base.messages import Message
    from gaudi_launch.core.doctor.findings import Finding
    from gaudi_launch.core.engines.detect import Installed
    from gaudi_launch.core.launch.model_needs import Provision
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.launch.setup_steps import SetupStep
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.engine import Engine
    from gaudi_launch.core.planning.plan import Placement, Plan
    from gaudi_launch.core.planning.request import Request
    from gaudi_launch.core.recipes.attach import Cached

_log = logging.getLogger(__name__)
_ENGINE_CHECK = "engine.present"
# huggingface/optimum-habana@v1.20.0:examples/text-generation/README.md ("Running with FP8")
_MEASURE = (
    "env",
    "PT_HPU_LAZY_MODE=1",
    "QUANT_CONFIG=./quantization_config/maxabs_measure.json",
    "python3",
    "run_generation.py",
    *("--use_hpu_graphs", "--use_kv_cache", "--limit_hpu_graphs"),
    *("--bucket_size", "128", "--max_new_tokens", "128", "--batch_size", "1", "--bf16"),
)


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
        from gaudi_launch.core.engines.detect import detect

        registry.check_engine(self.engine, self.installed or detect(self.request.python))

    def plan(self, placement: Placement | None = None) -> Plan:
        """Return the plan.

        ``placement`` for cards that were chosen and are reserved already.
        """
        from gaudi_launch.core.buckets.warmup_time import FILE_NAME, read_measured
        from gaudi_launch.core.engines.introspect import InstalledBuckets
        from gaudi_launch.core.planning.planner import make_plan

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
        made = replace(made, warnings=(*self._name_notes(), *made.warnings, *differs))
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

    def _name_notes(self) -> tuple[Message, ...]:
        """Return the warnings for a model whose files were not read."""
        from gaudi_launch.core.planning.model_name import name_warning

        if self.provision is None:
            return name_warning(self.request.model, self.model)
        # the plan's model may have another path, of the folder that a conversion will write
        return name_warning(self.provision.facts.model, self.provision.known)

    def cached(self, plan: Plan) -> Cached | None:
        """Return the plan with its recipe cache; None where there is none to manage."""
        from gaudi_launch.core.recipes.attach import with_cache

        if not self.engine.keeps_recipes:
            return None
        here = self.machine is None
        return with_cache(
            plan, self.request, self.host, cache_dir(), look=here, machine_root=machine_root()
        )

    def with_cache(self, plan: Plan) -> Plan:
        """Return the plan with its recipe cache, where there is one to manage."""
        cached = self.cached(plan)
        if cached is None:
            return plan
        return cached.plan

    def findings(self, plan: Plan) -> list[Finding]:
        """Return the doctor's fast checks of this machine for this plan."""
        from gaudi_launch.core.doctor.findings import Wants
        from gaudi_launch.core.doctor.runner import quick
        from gaudi_launch.core.engines.detect import engine_facts
        from gaudi_launch.core.host.host_config import load_config

        engine = mapped(engine_facts, self.installed)
        elsewhere = self.machine is not None and self.request.python is None
        if elsewhere or not self.engine.innermost.needs_interpreter:
            engine = None  # this machine's says nothing about it
        if plan.engine.simulated:
            # the cards are those of another machine, the process is of this one
            wants = Wants(gaudi=False, engine=self.engine.environment)
            return quick(Host(), load_config(None), wants, engine)
        modules = plan.placement.modules
        # the port is checked separately, on the machine that it will be opened on
        wants = Wants(
            cards=len(modules) or None,
            modules=modules,
            gaudi=self.engine.needs_cards,
            container=plan.container is not None,
            engine=self.engine.innermost.identity.label,
        )
        return quick(self.host, load_config(self.machine), wants, engine)


def refuse_simulated(prepared: Prepared) -> None:
    """Raise LaunchError (USAGE) for simulated cards, which run on this machine only."""
    if prepared.engine.innermost.identity.simulated:
        raise LaunchError("simulated.here_only", ExitCode.USAGE)


@dataclass(frozen=True)
class Todo:
    """One thing that a plan needs before it starts, and the arguments of its command.

    ``by_serve``: serve does it itself; else serve ends with ``exit_code``. ``mends`` is the failed
    check that it ends.
    """

    what: Message
    command: tuple[str, ...] = ()
    by_serve: bool = False
    mends: str = ""
    exit_code: ExitCode = ExitCode.MODEL

    @property
    def line(self) -> str:
        """Return the command to copy; "" where serve does it, or no command does."""
        return f"$ {shlex.join(self.command)}" if self.command and not self.by_serve else ""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.what.id, "what": self.what.render(), "command": list(self.command)}


@dataclass(frozen=True)
class CheckedPlan:
    """A plan, its inputs, what is left to do, and the failed checks beyond that.

    The plan's warnings end with those of ``failed``; what is left to do is not among them.
    ``taken``: the address is not free on the machine where it will be opened.
    """

    plan: Plan
    prepared: Prepared
    failed: tuple[Finding, ...] = ()
    todo: tuple[Todo, ...] = ()
    incomplete: LaunchError | None = None
    taken: LaunchError | None = None

    @property
    def verdict(self) -> Literal["ready", "to do", "refused"]:
        """Return whether serve can start the plan now, after something is done, or not."""
        if any((self.refusal, self._fails_here)):
            return "refused"
        return "to do" if self.todo else "ready"

    def startable(self, options: LaunchOptions) -> LaunchOptions:
        """Return the options that end its refusal: a free port, consent."""
        if self.taken is not None:
            options = replace(options, port=str(self.taken.text.values.get("free", options.port)))
        consent = options.trust_remote_code or self.lacks_consent is not None
        return replace(options, trust_remote_code=consent)

    @property
    def refusal(self) -> LaunchError | None:
        """Return why serve refuses the plan on any machine, or None."""
        return self.incomplete or self.lacks_consent or self.taken

    @property
    def lacks_consent(self) -> LaunchError | None:
        """Return the refusal of a model's own code without --trust-remote-code, if any."""
        provision = self.prepared.provision
        return None if provision is None else provision.code

    @property
    def _fails_here(self) -> bool:
        """Return True if a check of this machine, not of another one, failed."""
        return bool(self.failed) and self.prepared.host.origin == "live"

    def refuse(self, *, no_doctor: bool = False) -> None:
        """Raise LaunchError unless serve can start the plan, with what it does itself."""
        from gaudi_launch.core.doctor.runner import stop_on_failures

        if self.refusal is not None:
            raise self.refusal
        if self._fails_here and not no_doctor:
            stop_on_failures(self.failed)
        left = [each for each in self.todo if not each.by_serve]
        if left:
            near = (each.render() for each in self.plan.warnings if each.id == "plan.name_near")
            lines = [line for each in left for line in (each.what.render(), each.line) if line]
            raise LaunchError(
                "serve.to_do",
                left[0].exit_code,
                detail="\n".join(f"  {line}" for line in (*lines, *near)),
                model=self.prepared.request.model,
                count=len(left),
            )


def checked_plan(options: LaunchOptions) -> CheckedPlan:
    """Return the plan of these options with the doctor's fast checks.

    Reads only: the model and the engine need not exist. Raises LaunchError.
    """
    prepared = prepare(options, secret_file=True)
    return checked(prepared, prepared.with_cache(prepared.plan()))


def checked(prepared: Prepared, made: Plan) -> CheckedPlan:
    """Return a plan with the doctor's fast checks and what is left to do."""
    from gaudi_launch.core.planning.model_name import check_files

    todo = tuple(_todo(made, prepared))
    mended, listed = {each.mends for each in todo}, {each.what for each in todo}
    failed = tuple(
        finding
        for finding in prepared.findings(made)
        if finding.status == "fail" and finding.id not in mended
    )
    incomplete = None
    if not made.engine.simulated:
        try:
            check_files(prepared.model, prepared.request)
        except LaunchError as error:
            incomplete = error
    taken = None
    if prepared.machine is None or made.engine.simulated:
        # it starts processes
        from gaudi_launch.core.services.preflight import check_port

        try:
            check_port(made.url)
        except LaunchError as error:
            taken = error
    warnings = [
        each
        for each in made.warnings
        if each not in listed and not (each.id == "plan.no_engine" and _ENGINE_CHECK in mended)
    ]
    warnings += [each.text for each in (incomplete, taken) if each is not None]
    warnings += [finding.message for finding in failed]
    made = replace(made, warnings=tuple(warnings))
    return CheckedPlan(made, prepared, failed, todo, incomplete, taken)


def _todo(made: Plan, prepared: Prepared) -> Iterator[Todo]:
    """Yield what is left to do for this plan, in order."""
    from gaudi_launch.core.planning.model_name import lacks_weights

    request, simulated = prepared.request, made.engine.simulated
    here = prepared.machine is None
    # a hub ID is fetched, and its config.json read, by serve
    fetched = looks_like_hub_id(request.model)
    # a complete path may be a folder of another machine
    elsewhere = not here and Path(request.model).is_absolute()
    for warning in made.warnings:
        if warning.id == "plan.name_sizeless":
            yield Todo(warning, by_serve=fetched)
        elif here and warning.id in ("plan.config_unknown", "quant.unreadable"):
            yield Todo(warning, exit_code=ExitCode.USAGE)
        elif warning.id == "plan.name_listed" and not (simulated or elsewhere):
            hub_id = str(warning.values["hub_id"])
            yield Todo(warning, ("gaudi-launch", "pull", hub_id, "--to", request.model))
    if here and lacks_weights(prepared.model, request):
        yield Todo(message("serve.no_weights", path=request.model))
    if made.container is None and (here or simulated):
        yield from _engine_todo(prepared)
    for each in prepared.steps:
        if not each.done and each.name != "engine" and each.what.id != "prepare.room_unknown":
            by_serve, code = each.name != "disk", ExitCode.MACHINE
            yield Todo(each.what, each.command, by_serve=by_serve, exit_code=code)
    cards = str(len(made.placement.modules))
    calibrate = ("gaudi-launch", "fp8", "calibrate", request.model, "-n", cards)
    # the fetched config.json may show that the weights are fp8 already
    decides_later = fetched and prepared.model.is_only_a_name
    for warning in made.warnings:
        if warning.id in ("quant.none", "quant.measurements_missing"):
            yield Todo(warning, calibrate, by_serve=decides_later)
        elif warning.id == "tgi.not_measured":
            measure = (*_MEASURE, "--model_name_or_path", request.model)
            yield Todo(warning, measure, exit_code=ExitCode.USAGE)


def _engine_todo(prepared: Prepared) -> Iterator[Todo]:
    """Yield the installations of a missing engine and of Ray around it."""
    from gaudi_launch.core.engines.detect import detect

    engine, installed = prepared.engine, prepared.installed or detect(prepared.request.python)
    inside = engine.innermost
    name = inside.environment
    if prepared.request.engine.rpartition(":")[2].startswith(f"{name}@"):
        # this release of it
        name = inside.identity.exact
    python = str(registry.installation(name).python())
    if installed is not None and (inside.packages or registry.has(installed, name)):
        python = installed.python
    with_pip = (python, "-m", "pip", "install", *engine.packages)
    wanted: list[tuple[Engine, tuple[str, ...]]]
    wanted = [(inside, ("gaudi-launch", "setup", name))]
    if engine.inner is not None and not engine.needs_cards:
        # the environment for trials has the embedded engine, too
        wanted = [(engine, ("gaudi-launch", "setup", "ray"))]
    elif inside.packages:
        wanted = [(engine, with_pip)]
    elif engine.inner is not None:
        wanted.append((engine, with_pip))
    # serve installs the demo model's engine
    is_demo = prepared.request.model == "demo"
    found: dict[str, Todo] = {}
    for each, command in wanted:
        try:
            registry.check_engine(each, installed)
        except LaunchError as error:
            todo = Todo(error.text, command, is_demo, _ENGINE_CHECK, ExitCode.MACHINE)
            found.setdefault(error.id, todo)
    yield from found.values()


def plan(options: LaunchOptions) -> tuple[Plan, Prepared]:
    """Return the plan of `checked_plan` and what it is made of.

    What is left to do, and serve does not do, is among its warnings.
    """
    checked = checked_plan(options)
    left = [each.what for each in checked.todo if not each.by_serve]
    return replace(checked.plan, warnings=(*left, *checked.plan.warnings)), checked.prepared


def _host_of(engine: Engine, machine: str | None) -> Host:
    """Return the machine; an empty one for an engine on this machine's CPU."""
    from gaudi_launch.core.launch.machine import load

    # an engine on the CPU needs no card, so the machine's cards are not read
    if engine.needs_cards or machine:
        return load(machine)
    return Host()


def _libfabric_root() -> str:
    """Return the folder into which `setup --scale-out` installed libfabric.

    Return "" without one.
    """
    from gaudi_launch.core.engines.install.install_steps import LIBFABRIC_ROOT

    library = machine_root() / LIBFABRIC_ROOT.lstrip("/") / "lib" / "libfabric.so"
    if not library.exists():
        return ""
    return LIBFABRIC_ROOT


def prepare(
    options: LaunchOptions,
    *,
    in_image: bool = False,
    secret_file: bool = False,
) -> Prepared:
    """Read the machine, the engine's interpreter and the model for these options.

    Nothing is written, and names suffice. ``in_image``: the engine is in an image, and no
    interpreter of this machine is queried for it. ``secret_file``: a secret option that the engine
    reads from no variable goes into a file.
    """
    from gaudi_launch.core.engines.detect import is_elsewhere
    from gaudi_launch.core.host.accelerators import product_of
    from gaudi_launch.core.launch.machine import load
    from gaudi_launch.core.launch.model_needs import look
    from gaudi_launch.core.planning.balanced_cards import with_balanced_cards
    from gaudi_launch.core.planning.effects import with_overrides
    from gaudi_launch.core.planning.profiles import known_model

    options = merged(options)
    compared = ComparedPlan.of(options)
    request = to_request(options)
    simulated = registry.entry(request.engine).machine
    options = replace(options, machine=options.machine or simulated or None)
    here = options.machine is None
    request = _with_safe_secrets(request, into_file=secret_file)
    if request.model == "demo":
        request = _demo(request, in_image=in_image)
    read = cache(partial(known_model, request.model, must_exist=False))

    with step("screen.step_engine"):
        engine, installed = planned_engine(
            request,
            read,
            lambda: product_of(load(options.machine)),
            here=here,
            look=not in_image and (here or not is_elsewhere(request.python, here=here)),
        )
    request = with_config_file(request, engine)
    request = for_engine(request, engine)
    if here:
        request = replace(request, libfabric_root=_libfabric_root())
    host = _host_of(engine, options.machine)
    if request.tuning == "reference":
        # as with the start scripts, the engine fetches a hub ID by itself
        model = with_overrides(read(), request.args)
        return Prepared(
            request,
            host,
            model,
            engine.suited(model),
            installed,
            options.machine,
            saved=compared,
        )
    with step("screen.step_model"):
        provision = look(request, host, engine, installed, read())
    engine = engine.suited(provision.known)
    _refuse_unsupported(request, host, engine, provision.known)
    with step("screen.step_plan"):
        planned = provision.planned(provision.request_for(request))
        request = with_balanced_cards(request, host, planned, engine)
    if request.chosen_cards is not None:
        # files of fp8 depend on the number of cards
        provision = look(request, host, engine, installed, read())
    request = provision.request_for(request)
    model = provision.planned(request)
    if not simulated and Path(request.model).is_dir():
        # the folder that is served may be a converted one
        model = with_overrides(known_model(request.model), request.args)
    engine = engine.suited(model)
    return Prepared(request, host, model, engine, installed, options.machine, provision, compared)


def _with_safe_secrets(request: Request, *, into_file: bool) -> Request:
    """Return the request with secret options where other users cannot read them.

    Raises LaunchError (USAGE) where that is impossible.
    """
    from gaudi_launch.core.planning.engine_args import engine_args
    from gaudi_launch.core.planning.secret_args import refuse_secret_args, with_secret_moved

    if not registry.entry(request.engine).in_container:
        return with_secret_moved(request, into_file=into_file)
    # also with --force: other users of the machine can read the container's command line
    refuse_secret_args(engine_args(user=request.extra))
    return replace(request, environment=_standing(request.environment))


def for_engine(request: Request, engine: Engine) -> Request:
    """Return the request with this engine's options, interpreter and bucket file.

    The file's text is read for an engine that stops at a line that it cannot read. Raises
    LaunchError (USAGE) where there is no such file.
    """
    from gaudi_launch.core.planning.passthrough import with_own_words

    if request.tuning == "auto" and not registry.entry(request.engine).in_container:
        request = with_own_words(request, engine.identity, engine.lacks)
    if not engine.needs_cards and request.python is None:
        request = replace(request, python=engine.identity.python)
    path = mapped(request.environment.get, engine.innermost.bucket_file)
    if not path:
        return request
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return replace(request, bucket_file=file.read(1 << 22))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("gaudi.file_unread", ExitCode.USAGE, path=path, why=why) from None


def _refuse_unsupported(request: Request, host: Host, engine: Engine, model: Model) -> None:
    """Refuse unsupported options, before anything that could be missing for them."""
    from gaudi_launch.core.planning.planner import refuse_options
    from gaudi_launch.core.planning.support_answer import check_support

    refuse_options(request, host, model, engine)
    supported = engine.innermost.support(model, request.args, request.environment)
    check_support(supported, force=request.force)


def with_config_file(request: Request, engine: Engine) -> Request:
    """Return the request with the options of the user's --config FILE.

    It is for an engine that reads one, and may not exist yet.

    Raises LaunchError (USAGE) where the engine would stop on it.
    """
    from gaudi_launch.core.planning.passthrough import with_options
    from gaudi_launch.core.planning.secret_args import CONFIG

    if request.secret_options and engine.config_file != "read":
        # the first option of the file as the user wrote it
        key = json.loads(request.secret_options.partition(": ")[0])
        raise LaunchError("plan.secret_argument", ExitCode.USAGE, option=f"--{key}")
    kind = engine.innermost.config_file
    request = with_options(request, engine.innermost.identity)
    if not kind or not request.args.given(CONFIG):
        return request
    from gaudi_launch.core.planning.config_file import named_file, with_file

    path = named_file(request.args)
    if path is None:
        return request
    if kind == "breaks":
        raise LaunchError(
            "plan.config_breaks", ExitCode.USAGE, path=path, engine=engine.innermost.identity.label
        )
    try:
        with Path(path).open(encoding="utf-8") as file:
            return with_file(request, path, file.read(1 << 20))
    except (OSError, UnicodeDecodeError) as error:
        _log.debug("%s is not read: %s", path, error)
        return replace(request, unread_file=path)


def _standing(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the current folder.

    docker needs absolute paths, and PWD may be another process's.
    """
    try:
        return {**environment, "PWD": str(Path.cwd())}
    except OSError as error:
        _log.debug("the current folder has no path: %s", error)
        return environment


def planned_engine(
    request: Request,
    model: Callable[[], Model],
    product: Callable[[], str],
    *,
    here: bool,
    look: bool = True,
) -> tuple[Engine, Installed | None]:
    """Return the engine of a request, and the interpreter that was queried for it.

    Every command that plans, sizes or estimates takes this one. ``look``: an interpreter may
    have it. Raises LaunchError.
    """

    def suited(found: Installed | None = None) -> str:
        return registry.name_for(request, found, model, product)

    installed = None
    if look:
        installed = installed_for(request, suited, here=here)
    return registry.find(suited(installed), installed, request.python), installed


def installed_for(request: Request, first: Callable[[], str], *, here: bool) -> Installed | None:
    """Return the interpreter of a request's engine.

    Of several that `setup` made it is that of ``first``.
    Return None for an engine in an image, or that of another machine (not ``here``).
    """

    name = request.engine
    if registry.entry(name).in_container:
        return None
    # the embedded engine with Ray does not apply to another machine
    elsewhere = registry.is_ray(name) and not here
    outer = name.partition(":")[0]
    if request.python is None and registry.is_made_by_steps(outer) and not elsewhere:
        return registry.made_by_steps(outer).detected(name)
    if here or request.python is not None or name == "auto":
        return registry.detect_engine(request.python, name, first)
    return None


def set_up_demo(options: LaunchOptions, reporter: Reporter) -> None:
    """Install the demo model and its engine. Raises LaunchError."""
    embedded = registry.made_by_steps(registry.demo_engine("auto"))
    embedded.check_launch()
    outer = (options.engine or "auto").partition(":")[0]
    if registry.is_ray(outer):
        around = registry.made_by_steps(outer)
        if not around.is_ready():
            around.setup(reporter.say)
    if embedded.missing(demo=True):
        embedded.setup(reporter.say)


def _demo(request: Request, *, in_image: bool) -> Request:
    """Return the request with the demo model's folder, if any, and its engine."""
    from gaudi_launch.core.engines.install.demo import demo_dir, demo_is_ready

    if in_image and not demo_is_ready():
        raise LaunchError("render.demo_missing", ExitCode.MODEL)
    folder = demo_dir()
    path = str(folder) if folder.is_dir() else "demo"
    engine = registry.demo_engine(request.engine)
    return replace(request, model=path, engine=engine, served_name=request.served_name or "demo")
