"""The remaining work before a plan starts, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.doctor.findings import Finding, Wants
from gaudi_launch.core.doctor.runner import quick, stop_on_failures
from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.engines.detect import detect
from gaudi_launch.core.engines.doctor_facts import engine_facts
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.host_config import load_config
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.model_name import check_files, lacks_weights
from gaudi_launch.core.planning.plan import Plan

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
            free = self.taken.text.values.get("free")
            options = replace(options, port=options.port if free is None else int(free))
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


def checked(prepared: Prepared, made: Plan) -> CheckedPlan:
    """Return a plan with the doctor's fast checks and what is left to do."""
    todo = tuple(_todo(made, prepared))
    mended, listed = {each.mends for each in todo}, {each.what for each in todo}
    failed = tuple(
        finding
        for finding in findings(prepared, made)
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
        # it finds the process that has the port, and a plan for another machine has none
        from gaudi_launch.core.services.addresses import check_port

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


def findings(prepared: Prepared, plan: Plan) -> list[Finding]:
    """Return the doctor's fast checks of this machine for this plan."""
    engine = mapped(engine_facts, prepared.installed)
    elsewhere = prepared.machine is not None and prepared.request.python is None
    if elsewhere or not prepared.engine.innermost.needs_interpreter:
        engine = None  # this machine's says nothing about it
    if plan.engine.simulated:
        # the cards are those of another machine, the process is of this one
        wants = Wants(gaudi=False, engine=prepared.engine.environment)
        return quick(Host(), load_config(None), wants, engine)
    modules = plan.placement.modules
    # the port is checked separately, on the machine that it will be opened on
    wants = Wants(
        cards=len(modules) or None,
        modules=modules,
        gaudi=prepared.engine.needs_cards,
        container=plan.container is not None,
        engine=prepared.engine.innermost.identity.label,
    )
    return quick(prepared.host, load_config(prepared.machine), wants, engine)


def _todo(made: Plan, prepared: Prepared) -> Iterator[Todo]:
    """Yield what is left to do for this plan, in order."""
    request, here = prepared.request, prepared.machine is None
    for warning in made.warnings:
        todo = _of_model(warning, made, prepared)
        if todo is not None:
            yield todo
    if here and lacks_weights(prepared.model, request):
        yield Todo(message("serve.no_weights", path=request.model))
    if made.container is None and (here or made.engine.simulated):
        yield from _engine_todo(prepared)
    for each in prepared.steps:
        if not each.done and each.name != "engine" and each.what.id != "prepare.room_unknown":
            by_serve, code = each.name != "disk", ExitCode.MACHINE
            yield Todo(each.what, each.command, by_serve=by_serve, exit_code=code)
    for warning in made.warnings:
        todo = _of_measurements(warning, made, prepared)
        if todo is not None:
            yield todo


def _of_model(warning: Message, made: Plan, prepared: Prepared) -> Todo | None:
    """Return what a warning about the model leaves to do."""
    model, here = prepared.request.model, prepared.machine is None
    if warning.id == "plan.name_sizeless":
        # a hub ID is fetched, and its config.json read, by serve
        return Todo(warning, by_serve=looks_like_hub_id(model))
    if here and warning.id in ("plan.config_unknown", "quant.unreadable"):
        return Todo(warning, exit_code=ExitCode.USAGE)
    # a complete path may be a folder of another machine
    elsewhere = not here and Path(model).is_absolute()
    if warning.id != "plan.name_listed" or made.engine.simulated or elsewhere:
        return None
    return Todo(warning, ("gaudi-launch", "pull", str(warning.values["hub_id"]), "--to", model))


def _of_measurements(warning: Message, made: Plan, prepared: Prepared) -> Todo | None:
    """Return what a warning about missing fp8 measurements leaves to do."""
    model = prepared.request.model
    if warning.id in ("quant.none", "quant.measurements_missing"):
        # the fetched config.json may show that the weights are fp8 already
        decides_later = looks_like_hub_id(model) and prepared.model.is_only_a_name
        cards = str(len(made.placement.modules))
        calibrate = ("gaudi-launch", "fp8", "calibrate", model, "-n", cards)
        return Todo(warning, calibrate, by_serve=decides_later)
    if warning.id == "tgi.not_measured":
        return Todo(warning, (*_MEASURE, "--model_name_or_path", model), exit_code=ExitCode.USAGE)
    return None


def _engine_todo(prepared: Prepared) -> Iterator[Todo]:
    """Yield the installations of a missing engine and of Ray around it."""
    engine, installed = prepared.engine, prepared.installed or detect(prepared.request.python)
    inside = engine.innermost
    name = inside.environment
    if prepared.request.engine.rpartition(":")[2].startswith(f"{name}@"):
        # this release of it
        name = inside.identity.exact
    python = str(entries.installation(name).python())
    if installed is not None and (inside.packages or entries.has(installed, name)):
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
