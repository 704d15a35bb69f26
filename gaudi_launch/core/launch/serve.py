"""Start a model: cards, plan, engine, warm-up, answer.

Supervised here, or passed to a detached launcher.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.doctor.runner import stop_on_failures
from gaudi_launch.core.engines.entries import entry
from gaudi_launch.core.engines.releases import release_of
from gaudi_launch.core.engines.setups import set_up_demo, setup_image
from gaudi_launch.core.launch import recipe_cache
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.launch.model_needs import clear_old_scales
from gaudi_launch.core.launch.model_setup import bring
from gaudi_launch.core.launch.prediction import of_plan, record_of
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.launch.report import LaunchDisplay, Reporter
from gaudi_launch.core.launch.route import Reserved, launch
from gaudi_launch.core.launch.saved_plan import merged, on_this_machine
from gaudi_launch.core.launch.service import Service
from gaudi_launch.core.launch.todo import CheckedPlan, findings
from gaudi_launch.core.planning.container import PROGRAMS, Container
from gaudi_launch.core.planning.exported import SECRETS
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.parse import seconds
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import place
from gaudi_launch.core.render.in_container import ContainerPlace, in_container
from gaudi_launch.core.services import addresses, service
from gaudi_launch.core.services.containers import (
    check_program,
    has_image,
    make_ready,
    settable_limits,
)
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.process.supervise import LIMITS, EngineOutcome
from gaudi_launch.core.services.state import registry, reservation, secret_file, store
from gaudi_launch.core.services.state.job import ServiceJob, check_restart, job_of
from gaudi_launch.core.services.state.orphans import orphans
from gaudi_launch.core.services.state.reservation import claim


@dataclass(frozen=True)
class ServeMode:
    """The way of serving, independent of the model."""

    name: str | None = None
    no_doctor: bool = False
    quiet: bool = False
    phase_timeout: str | None = None
    restart: str = "no"
    detach: bool = False
    place: str | None = None
    image: str | None = None


def start(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> Service:
    """Start a model; return when it ended, or is detached (``how.detach``).

    Without a port it takes that of the earlier service of its name, else the next free one from its
    engine's default. Raises LaunchError.
    """
    if how.name is not None:
        store.check_name(how.name)
    options = on_this_machine(options)
    given = merged(options)
    how = _named(how, given)
    if given.port is not None:
        return _start(options, how, reporter)
    earlier = _earlier_port(how.name)
    if earlier is not None:
        return _start(replace(options, port=earlier), how, reporter)
    return _at_a_free_port(options, how, reporter)


def _named(how: ServeMode, given: LaunchOptions) -> ServeMode:
    """Return the mode with the demo's name.

    A second demo at a given port is named by its port.
    """
    if given.model != "demo" or how.name is not None:
        return how
    demo = registry.read("demo")
    if given.port and demo is not None and demo.alive:
        return how
    return replace(how, name="demo")


def _earlier_port(name: str | None) -> int | None:
    """Return the port of the earlier service of a given name; None without one.

    A name from the model contains the port. Raises LaunchError (USAGE) where it runs.
    """
    earlier = registry.read(name) if name else None
    if earlier is None:
        return None
    if earlier.alive:
        raise LaunchError("services.name_taken", ExitCode.USAGE, name=earlier.name)
    return addresses.address(earlier.url)[1] if earlier.url else None


def _at_a_free_port(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> Service:
    """Start a model at the next free port from its engine's default.

    Another launch may take a port after it was found: the next one is tried then.
    """
    model = merged(options).model or ""
    while True:
        try:
            return _start(options, how, reporter)
        except LaunchError as error:
            if error.id not in ("serve.port_taken", "services.port_reserved"):
                raise
            port, free = error.text.values["port"], error.text.values["free"]
            named = store.default_name(model, str(port))
            if how.name is None and registry.read(named) is not None:
                raise
            options = replace(options, port=int(free))
            reporter.say(text("serve.next_port", port=port, free=free))


def _start(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> Service:
    """Start a model at the port of its options, else at its engine's default."""
    limits = dict(LIMITS)
    if how.phase_timeout is not None:
        limits = dict.fromkeys(limits, seconds("--phase-timeout", how.phase_timeout))
    check_restart(how.restart)
    _check_place(options, how)
    if options.model == "demo" and options.python is None and how.place is None:
        set_up_demo(options.engine, reporter.say)
    return launch(options, _Serving(how, limits, reporter))


@dataclass(frozen=True)
class _Serving:
    """The actions of serve on the route of a launch.

    ``limits`` are the seconds that a phase may last without progress.
    """

    how: ServeMode
    limits: Mapping[str, float]
    reporter: Reporter

    @property
    def in_image(self) -> bool:
        return self.how.place is not None

    @property
    def no_doctor(self) -> bool:
        return self.how.no_doctor

    def housed(self, prepared: Prepared, made: Plan) -> Plan:
        """Return the plan in the requested container; unchanged without one."""
        program = self.how.place
        if program is None:
            return made
        # an engine without cards needs no rights of root: the image's user has fewer
        user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else ""
        place = ContainerPlace(program, user, settable_limits(program), self.how.image)
        return in_container(made, prepared.host, prepared.request.environment, place)

    def bring(self, found: CheckedPlan) -> bool:
        """Fetch and convert what the model needs; return False if nothing is missing."""
        provision = found.prepared.provision
        if provision is None or all(step.done for step in provision.steps):
            return False
        bring(found.prepared.request, provision, self.reporter)
        return True

    @contextmanager
    def reserve(self, found: CheckedPlan) -> Iterator[Reserved]:
        """Prepare scales and container, then choose the cards and reserve them."""
        prepared = found.prepared
        if prepared.provision is not None:
            clear_old_scales(prepared.provision)
        # an image is fetched before cards are reserved
        if found.plan.container is not None:
            _check_built(found.plan.container, found.plan)
            make_ready(found.plan.container, self.reporter.say)
        request, engine = prepared.request, prepared.engine
        if engine.identity.simulated or not engine.needs_cards:
            yield None, ()
            return
        left = orphans()
        if left:
            self.reporter.say(text("services.orphans_there", count=len(left)))
        read = partial(load, prepared.machine)
        with claim(read, lambda host: place(request, host, engine), machine_root()) as reserved:
            yield reserved

    def start(self, prepared: Prepared, made: Plan, held: tuple[int, ...]) -> Service:
        """Lock the name and start the engine."""
        _host, port = addresses.address(made.url)
        name = self.how.name or store.default_name(prepared.model.name, str(port))
        if not self.how.no_doctor:
            stop_on_failures(findings(prepared, self.housed(prepared, made)))
        cached = recipe_cache.cached(prepared, made)
        made = self.housed(prepared, made if cached is None else cached.plan)
        secrets = secret_file.SecretFile(store.service_dir(name), prepared.request.secret_options)
        made = secrets.named_in(made)
        job = replace(
            job_of(made, prepared.request, name, cached),
            limits=self.limits,
            # a plan for another root does not concern this machine's CPUs; a container has an
            # option for them
            bind=machine_root() == Path("/") and made.container is None,
            restart=self.how.restart,
        )
        record, speed = record_of(prepared, made), of_plan(prepared, made)
        given = prepared.request.environment
        environment = {**os.environ, **{name: given[name] for name in SECRETS if name in given}}
        with reservation.hold_port(made.url, name) as ports, registry.hold(name) as lock:
            log = store.service_dir(name) / service.LOG
            secrets.write()
            if self.how.detach:
                self.reporter.screen(made, speed, log, quiet=True).begin()
                detach.spawn(job, record, environment, (lock, *held, *ports))
                return Service(name, made, log)
            screen = self.reporter.screen(made, speed, log, quiet=self.how.quiet)
            return Service(name, made, log, self._stay(job, record, screen, environment))

    def _stay(
        self,
        job: ServiceJob,
        record: Mapping[str, Any],
        screen: LaunchDisplay,
        environment: Mapping[str, str],
    ) -> EngineOutcome:
        """Run the engine in the foreground until it ends."""
        folder = store.service_dir(job.name)
        store.write(folder, "plan.json", record)
        store.write(folder, "job.json", job)
        try:
            screen.begin()
            return service.run(job, screen, environment, self.reporter.say)
        finally:
            screen.close()


def _check_place(options: LaunchOptions, how: ServeMode) -> None:
    """Raise LaunchError (USAGE) for incompatible --in, --image and other options."""
    if how.place not in (None, *PROGRAMS):
        known = ", ".join(PROGRAMS)
        raise LaunchError("render.place", ExitCode.USAGE, found=how.place, known=known)
    if how.image is not None and how.place is None:
        raise LaunchError("render.image_alone", ExitCode.USAGE)
    if how.place is not None and options.python:
        raise LaunchError("render.python_inside", ExitCode.USAGE)
    if how.place is None:
        return
    is_demo = options.model == "demo"
    engine = options.engine or "auto"
    if entry(engine).machine:
        raise LaunchError("simulated.here_only", ExitCode.USAGE)
    if is_demo and engine != "auto" and not entry(engine).built:
        raise LaunchError("render.demo_inside", ExitCode.USAGE)


def _check_built(container: Container, plan: Plan) -> None:
    """Check that an unpublished image was built.

    Raises LaunchError (MACHINE) with the command.
    """
    program = container.program
    check_program(program, needs_cards=bool(container.modules))
    engine = _built_by(plan, container.image)
    if engine is None or has_image(container.image, program):
        return
    values = {"image": container.image, "engine": engine, "program": program}
    if container.confined:
        raise LaunchError("render.cpu_inside", ExitCode.MACHINE, **values)
    raise LaunchError("render.not_built", ExitCode.MACHINE, **values)


def _built_by(plan: Plan, image: str) -> str | None:
    """Return the arguments of ``setup`` that build an image.

    Return None for a published one.
    """
    if image == setup_image(plan.engine.name):
        return plan.engine.name
    release = release_of(plan.engine.label, plan.engine.version)
    if release is None:
        return None
    return {
        release.built_image: release.engine,
        release.scale_out_image: f"{release.engine} --scale-out",
    }.get(image)
