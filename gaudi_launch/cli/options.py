"""The options that serve, plan and warmup share, and how they become a Request.

The letters are those of the 1.21 start script; they mean the same for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from gaudi_launch.doctor import Finding
    from gaudi_launch.engines.detect import Installed
    from gaudi_launch.host.records import Host
    from gaudi_launch.models.prepare import Step
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.engine import Engine
    from gaudi_launch.planning.plan import Placement, Plan
    from gaudi_launch.planning.request import Request
    from gaudi_launch.recipe_cache.use import Cached
    from gaudi_launch.services.provision import Provision

_MODEL, _CARDS, _LENGTHS, _ENGINE, _MORE = "Model and address", "Cards", "Lengths", "Engine", "More"


@dataclass(frozen=True)
class _Option:
    field: str
    names: tuple[str, ...]
    help: str
    panel: str
    metavar: str = ""

    @property
    def switch(self) -> bool:
        return not self.metavar


OPTIONS = (
    _Option("model", ("-w", "--weights"), "Weights: a folder or a hub id.", _MODEL, "MODEL"),
    _Option("host", ("-u", "--host"), "Address to listen on (default 127.0.0.1).", _MODEL, "ADDRESS"),
    _Option("port", ("-p", "--port"), "Port to listen on (default 30001).", _MODEL, "PORT"),
    _Option("served_name", ("--served-name",), "The model's name in requests.", _MODEL, "NAME"),
    _Option("cards", ("-n", "--cards"), "How many cards; which ones is our choice.", _CARDS, "N"),
    _Option("modules", ("-m", "--modules"), "Module IDs to use, e.g. 0,1,2,3.", _CARDS, "LIST"),
    _Option("machine", ("--machine",), "Plan for a snapshot file or simulated:NAME.", _CARDS, "MACHINE"),
    _Option("dtype", ("-d", "--dtype"), "bfloat16, float16, fp8, awq or gptq.", _ENGINE, "TYPE"),
    _Option("input_range", ("-i", "--input"), "Input tokens of a request: least,most.", _LENGTHS, "RANGE"),
    _Option("output_range", ("-o", "--output"), "Output tokens of a request: least,most.", _LENGTHS, "RANGE"),
    _Option("max_num_batched_tokens", ("-t", "--max-num-batched-tokens"), "Prompt tokens a step.", _LENGTHS, "N"),
    _Option("max_model_len", ("-l", "--max-model-len"), "Longest input plus output.", _LENGTHS, "N"),
    _Option("max_num_seqs", ("-b", "--max-num-seqs"), "Requests at once.", _LENGTHS, "N"),
    _Option("max_prefill_seqs", ("--max-prefill-seqs",), "Prompts in one prefill step.", _LENGTHS, "N"),
    _Option("reduce", ("-r", "--reduce"), "Hot batch and length, warmed tightly: 8,24000.", _LENGTHS, "BATCH,LEN"),
    _Option("padding_limit", ("--padding-limit",), "Largest padding share of a bucket, 0 to 0.5.", _LENGTHS, "X"),
    _Option("max_capture_len", ("--max-capture-len",), "Most tokens of a captured graph.", _LENGTHS, "N"),
    _Option("engine", ("--engine",), "auto, or one of 'gaudi-launch engines'.", _ENGINE, "ENGINE"),
    _Option("python", ("--python",), "The engine's interpreter (default: python3 on PATH).", _ENGINE, "PATH"),
    _Option("tuning", ("--tuning",), "auto, or reference: exactly what the start scripts do.", _ENGINE, "HOW"),
    _Option("memory_utilization", ("--memory-utilization",), "Share of free card memory to use.", _ENGINE, "X"),
    _Option("quant_config", ("--quant-config",), "Quantisation file (QUANT_CONFIG).", _ENGINE, "FILE"),
    _Option("inc_fp8", ("-q", "--inc-fp8"), "FP8 by neural compressor (deepseek_r1).", _ENGINE),
    _Option("scheduler_steps", ("-e", "--scheduler-steps"), "Decode steps a scheduling.", _ENGINE, "N"),
    _Option("replicas", ("--replicas",), "ray-serve: copies of the model, N or MIN..MAX.", _ENGINE, "N"),
    _Option(
        "target_ongoing", ("--ongoing",), "ray-serve: requests a replica before one more starts.", _ENGINE, "N"
    ),
    _Option("cache_dir", ("-c", "--cache"), "Folder of the recipe cache.", _MORE, "DIR"),
    _Option("skip_warmup", ("-s", "--skip-warmup"), "Do not warm up; shapes compile when met.", _MORE),
    _Option("profile", ("-f", "--profile"), "Turn the engine's profiler on.", _MORE),
    _Option("no_zero_padding", ("-z", "--no-zero-padding"), "Turn zero padding off.", _MORE),
    _Option("no_fused_sdpa", ("-a", "--no-fused-sdpa"), "Turn the fused attention kernel off.", _MORE),
    _Option("trust_remote_code", ("--trust-remote-code",), "Let the model's own code run.", _MORE),
    _Option("force", ("--force",), "Go on where a check says no.", _MORE),
)


def shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options and everything behind ``--``; it gets them as ``asked``, a dict."""
    parameters = [
        Parameter(
            option.field,
            Parameter.KEYWORD_ONLY,
            default=typer.Option(
                False if option.switch else None,
                *option.names,
                help=option.help,
                rich_help_panel=option.panel,
                metavar=option.metavar or None,
            ),
            annotation=bool if option.switch else str | None,
        )
        for option in OPTIONS
    ]
    extra = Parameter(
        "extra",
        Parameter.KEYWORD_ONLY,
        default=typer.Argument(None, metavar="[-- ENGINE OPTIONS]", help="Behind --: to the engine, untouched."),
        annotation=list[str] | None,
    )
    own = [p for p in signature(command, eval_str=True).parameters.values() if p.name != "asked"]
    names = {option.field for option in OPTIONS} | {"extra"}

    def run(**values: Any) -> Any:
        asked = {name: values.pop(name) for name in names}
        return command(asked=asked, **values)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__signature__ = signature(command).replace(parameters=[*own, *parameters, extra])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *parameters, extra]}
    return run


def to_request(asked: dict[str, Any], environment: dict[str, str] | None = None) -> Request:
    """The Request of these options. Raises LaunchError (USAGE) for a value that cannot be."""
    import os
    import time

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.paths import cache_dir
    from gaudi_launch.planning import asked as read
    from gaudi_launch.planning.placement import parse_modules
    from gaudi_launch.planning.request import Request

    if not asked["model"]:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    tuning = asked["tuning"] or "auto"
    if tuning not in ("auto", "reference"):
        raise LaunchError("plan.tuning", ExitCode.USAGE, found=tuning)
    readers: dict[str, Callable[[str], Any]] = {
        "cards": lambda text: read.number("-n", text, 1, 64),
        "modules": lambda text: parse_modules(text),
        "port": lambda text: read.port("-p", text),
        "replicas": lambda text: read.replicas(text),
        "target_ongoing": lambda text: read.number("--ongoing", text),
        "reduce": lambda text: read.reduce(text, one_is_both=tuning == "reference"),
        "padding_limit": lambda text: read.fraction("--padding-limit", text, 0.0, 0.5),
        "memory_utilization": lambda text: read.fraction("--memory-utilization", text, 0.01, 1.0),
    }
    for name, flag, most in (
        ("max_num_batched_tokens", "-t", read.MOST_TOKENS),
        ("max_model_len", "-l", read.MOST_TOKENS),
        ("max_num_seqs", "-b", read.MOST_SEQS),
        ("scheduler_steps", "-e", read.MOST_SEQS),
        ("max_prefill_seqs", "--max-prefill-seqs", read.MOST_SEQS),
        ("max_capture_len", "--max-capture-len", read.MOST_TOKENS),
    ):
        readers[name] = lambda text, flag=flag, most=most: read.number(flag, text, 1, most)  # type: ignore[misc]
    values: dict[str, Any] = {}
    for option in OPTIONS:
        value = asked[option.field]
        if option.field in ("machine", "input_range", "output_range") or value is None:
            continue
        values[option.field] = readers[option.field](value) if option.field in readers else value
    values |= read.ranges(asked["input_range"], asked["output_range"])
    values |= {"tuning": tuning, "engine": asked["engine"] or "auto", "extra": tuple(asked["extra"] or ())}
    # a switch that was not given is no opinion, not a refusal
    values["trust_remote_code"] = asked["trust_remote_code"] or None
    return Request(
        **values,
        environment=dict(os.environ if environment is None else environment),
        files_dir=str(cache_dir() / "buckets"),
        stamp=time.strftime("%Y-%m-%d-%H-%M-%S"),
    )


@dataclass(frozen=True)
class Prepared:
    """All that a plan is made of, read once."""

    request: Request
    host: Host
    model: Model
    engine: Engine
    installed: Installed | None
    machine: str | None = None
    provision: Provision | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """What serve does, or found done, before it starts the engine."""
        return self.provision.steps if self.provision else ()

    def plan(self, placement: Placement | None = None) -> Plan:
        """The plan; with ``placement`` for cards that were chosen and are held already."""
        from dataclasses import replace

        from gaudi_launch.engines.registry import is_decided
        from gaudi_launch.messages import message
        from gaudi_launch.paths import state_dir
        from gaudi_launch.planning.planner import make_plan
        from gaudi_launch.warmup.estimate import FILE_NAME, read_measured

        measured = read_measured(state_dir() / FILE_NAME)
        made = make_plan(self.request, self.host, self.model, self.engine, placement, measured=measured)
        if not is_decided(self.request.engine, self.installed):
            python = self.installed.python if self.installed else "PATH"
            assumed = message("plan.no_engine", python=python, engine=made.engine.exact)
            made = replace(made, warnings=(assumed, *made.warnings))
        notes = self.provision.notes if self.provision else ()
        return replace(made, warnings=(*notes, *made.warnings))

    def trusted(self, plan: Plan) -> Plan:
        """The plan with the bucket list that the installed engine makes itself, where it can be asked for it.

        Raises LaunchError when the engine says that it cannot start with these settings.
        """
        from dataclasses import replace

        from gaudi_launch.errors import ExitCode, LaunchError
        from gaudi_launch.messages import message
        from gaudi_launch.planning.engine import Context
        from gaudi_launch.warmup import ask

        question = getattr(self.engine, "bucket_question", None)
        facts = self.installed.facts if self.installed is not None else {}
        # the plugin has lists that it never warms up (pooling models)
        askable = "extension_kind" in facts or ("plugin" in facts and plan.buckets is not None)
        if question is None or self.installed is None or not askable:
            return plan
        limits = self.engine.limits(self.request, self.host, self.model)
        context = Context(self.request, self.host, self.model, plan.placement, limits)
        engine, _, env, arguments = question(plan.settings, context, plan.num_blocks)
        answer = ask.ask_engine(self.installed.python, engine, env, arguments)
        if answer.failed:
            why = answer.why.render() if answer.why else "-"
            raise LaunchError("plan.buckets_fail", ExitCode.USAGE, why=why)
        if answer.buckets is None or answer.buckets == plan.buckets:
            return plan
        ours = plan.buckets.graphs if plan.buckets else 0
        differs = message("plan.engine_buckets", ours=ours, theirs=answer.buckets.graphs)
        strategy = answer.algorithm or plan.bucket_strategy
        return replace(plan, buckets=answer.buckets, bucket_strategy=strategy, warnings=(*plan.warnings, differs))

    def cached(self, plan: Plan) -> Cached | None:
        """The plan with its recipe cache; None where there is none to manage."""
        from gaudi_launch.paths import cache_dir, machine_root
        from gaudi_launch.recipe_cache.use import with_cache

        here = self.machine is None
        return with_cache(plan, self.request, self.host, cache_dir(), look=here, machine_root=machine_root())

    def findings(self, plan: Plan) -> list[Finding]:
        """The doctor's quick verdict on this machine for this plan."""
        from gaudi_launch.cli.doctor import engine_facts
        from gaudi_launch.doctor import Wants, quick
        from gaudi_launch.host.config import load_config

        modules = plan.placement.modules
        # the port is asked for on its own, of the machine that it will be opened on
        wants = Wants(
            cards=len(modules) or None,
            modules=modules,
            gaudi=self.engine.needs_cards,
            container=plan.container is not None,
        )
        engine = engine_facts(self.installed) if self.installed is not None else None
        return quick(self.host, load_config(self.machine), wants, engine)


def prepare(asked: dict[str, Any], *, must_exist: bool, in_image: bool = False) -> Prepared:
    """Read the machine, the engine's interpreter and the model for these options.

    ``must_exist``: serve needs the model's folder and the engine; plan is content with names. ``in_image``: the
    engine is in an image, and no interpreter of this machine is asked for it.
    """
    from dataclasses import replace

    from gaudi_launch.cli.provide import bring
    from gaudi_launch.engines import registry
    from gaudi_launch.host.machine import load
    from gaudi_launch.host.records import Host
    from gaudi_launch.planning.asked import with_secret_moved
    from gaudi_launch.planning.own_words import with_own_words
    from gaudi_launch.profiles import known_model
    from gaudi_launch.services import provision as provisions

    request = to_request(asked)
    if registry.in_container(request.engine):
        request = replace(request, environment=_standing(request.environment))
    else:
        request = with_secret_moved(request)
    if request.model == "demo":
        request = _demo(request, make=must_exist)
    installed = None if in_image else _installed(request, must_exist, here=asked.get("machine") is None)
    engine = registry.find(_engine_name(request, installed, asked.get("machine")), installed, request.python)
    if request.tuning == "auto" and not registry.in_container(request.engine):
        request = with_own_words(request, engine.lacks)
    if not engine.needs_cards and request.python is None:
        request = replace(request, python=engine.identity.python)
    request = with_bucket_file(request, engine)
    # an engine on the CPU needs no card, so the machine's cards are not even looked at
    host = load(asked.get("machine")) if engine.needs_cards or asked.get("machine") else Host()
    if request.tuning == "reference":
        model = known_model(request.model, must_exist)
        return Prepared(request, host, model, _suited(engine, model), installed, asked.get("machine"))
    provision = provisions.look(request, host, engine, installed)
    engine = _suited(engine, provision.known)
    # options that this engine does not have come before anything that could be missing for them
    engine.refuse(request, host, provision.known)
    if must_exist and any(not step.done for step in provision.steps):
        provisions.refuse_early(request, host, engine, installed, provision)
        bring(request, provision)
        provision = provisions.look(request, host, engine, installed)
    if must_exist:
        provisions.check(provision)
    request = provision.request_for(request)
    model = provision.planned(request) if not must_exist else known_model(request.model)
    return Prepared(request, host, model, _suited(engine, model), installed, asked.get("machine"), provision)


def _suited(engine: Engine, model: Model) -> Engine:
    """The engine for this model: some are another one inside for some models."""
    suited = getattr(engine, "suited", None)
    return engine if suited is None else cast("Engine", suited(model))


def _engine_name(request: Request, installed: Installed | None, machine: str | None) -> str:
    """Where no engine is installed: the one that the model asks for; -q is an option of one engine only."""
    from gaudi_launch.engines.registry import assumed_for, is_decided
    from gaudi_launch.host.accelerators import product_of
    from gaudi_launch.host.machine import load
    from gaudi_launch.profiles import known_model

    if is_decided(request.engine, installed):
        return request.engine
    if request.inc_fp8:
        return "deepseek_r1"
    return assumed_for(known_model(request.model, must_exist=False), lambda: product_of(load(machine)))


def with_bucket_file(request: Request, engine: Engine) -> Request:
    """With the text of the bucket file that the user exported, for an engine that reads one: it dies of a line that
    it cannot read. Raises LaunchError (USAGE) where there is no such file."""
    from dataclasses import replace
    from pathlib import Path

    from gaudi_launch.errors import ExitCode, LaunchError

    variable = getattr(getattr(engine, "inner", engine), "bucket_file", None)
    path = request.environment.get(variable) if variable is not None else None
    if not path:
        return request
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return replace(request, bucket_file=file.read(1 << 22))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("gaudi.file_unread", ExitCode.USAGE, path=path, why=why) from None


def _standing(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the folder that we stand in: docker needs whole paths, and PWD may be another's."""
    from pathlib import Path

    try:
        return {**environment, "PWD": str(Path.cwd())}
    except OSError:
        return environment


def _installed(request: Request, needed: bool, here: bool) -> Installed | None:
    from gaudi_launch.engines import embedded, registry
    from gaudi_launch.engines.detect import detect

    if registry.in_container(request.engine):
        return None
    if request.python is None and registry.on_cpu(request.engine):
        return detect(str(embedded.python_path())) if embedded.engine_is_ready() else None
    # the embedded engine beside Ray says nothing about another machine
    if request.python is None and registry.is_ray(request.engine) and here:
        from gaudi_launch.engines import ray_environment

        return ray_environment.installed(demo=request.model == str(embedded.demo_dir()))
    if needed or request.python is not None or request.engine == "auto":
        return detect(request.python)
    return None


def _demo(request: Request, make: bool) -> Request:
    """The demo model: its folder and engine, made now when serve needs them."""
    import sys
    from dataclasses import replace

    from gaudi_launch.engines import embedded, ray_environment, registry

    ray = registry.is_ray(request.engine)
    if make and ray and request.python is None and not ray_environment.is_ready():
        ray_environment.setup(lambda line: print(line, file=sys.stderr, flush=True))
    if make and request.python is None and not (embedded.engine_is_ready() and embedded.demo_is_ready()):
        embedded.setup(lambda line: print(line, file=sys.stderr, flush=True))
    engine = {"auto": "cpu", "ray-serve": "ray-serve:cpu"}.get(request.engine, request.engine)
    folder = embedded.demo_dir()
    path = str(folder) if make or folder.is_dir() else "demo"
    return replace(request, model=path, engine=engine, served_name=request.served_name or "demo")
