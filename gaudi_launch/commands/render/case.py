"""The use cases of ``gaudi-launch render``: a plan as files, by target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import switch, value
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.detect import is_elsewhere
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.render.deliver import Destination, RenderedFiles, deliver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gaudi_launch.core.launch.named_plans import NamedPlans, ReadPlans
    from gaudi_launch.core.launch.prepared import Prepared
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.placement import Placement
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.render.rendered import Rendered
    from gaudi_launch.core.render.systemd import UnitOptions

_OUTPUT = "Output"
# ports of rendered engines, in the order of the file: the same on every machine
_FIRST_PORT = 30101


@dataclass(frozen=True)
class FileOptions:
    """The options of rendered files, and whether they are shown as JSON."""

    output: str | None = value(
        "--to", help="Target folder or file (default: stdout).", panel=_OUTPUT, metavar="DIR|FILE"
    )
    name: str | None = value(
        "--name",
        help="The service's name (default: from model and port).",
        panel=_OUTPUT,
        metavar="NAME",
    )
    as_json: bool = switch("--json", help="The files as one JSON object.", panel=_OUTPUT)

    @property
    def destination(self) -> Destination:
        """Return where the files go; as JSON several may be shown."""
        return Destination(self.output, self.name, several=self.as_json)


@dataclass(frozen=True)
class ContainerFileOptions(FileOptions):
    """The options of files that describe a container."""

    image: str | None = value(
        "--image",
        help="Container image (default: the engine's own).",
        panel=_OUTPUT,
        metavar="IMAGE",
    )


@dataclass(frozen=True)
class SystemdOptions:
    """Options of a unit.

    ``user``: for ``systemctl --user``. ``run_as``: the user of the service (None: this one).
    ``with_tuning``: it starts after ``doctor --fix``.
    """

    user: bool = False
    run_as: str | None = None
    with_tuning: bool = False


@dataclass(frozen=True)
class PlanToRender:
    """A plan with the data for files. ``files`` are its texts, by name."""

    prepared: Prepared
    plan: Plan
    name: str
    files: dict[str, str]

    def on_host(self, reporter: Reporter) -> Plan:
        """Return the plan with an interpreter that has the engine, or will have it.

        Without one it is that of `setup`. Raises LaunchError where --python lacks the engine.
        """
        from gaudi_launch.core.engines.install.environment import linked_python

        prepared, here = self.prepared, self.prepared.machine is None
        if self.plan.container is not None or not prepared.engine.needs_interpreter:
            return self.plan
        chosen = prepared.request.python is not None or prepared.engine.inner is not None
        if is_elsewhere(prepared.request.python, here=here) or (chosen and not here):
            return self.plan
        if here:
            try:
                prepared.check_engine()
                return self.plan
            except LaunchError:
                if chosen:
                    raise
        engine = prepared.engine.environment
        python = linked_python(engine)
        if not python.exists():
            reporter.say(text("render.python_later", python=str(python), engine=engine))
        return _with_program(self.plan, str(python))

    @property
    def container_name(self) -> str:
        """Return the name in the form for containers."""
        from gaudi_launch.core.render.plan_container import container_name

        return container_name(self.name)

    @property
    def exported(self) -> dict[str, str]:
        """Return the user's exported variables."""
        return dict(self.prepared.request.environment)

    def container(self, image: str | None, *, own_network: bool = False) -> Container:
        """Return the plan as a container."""
        from gaudi_launch.core.base import mirrors
        from gaudi_launch.core.render.plan_container import container_of
        from gaudi_launch.core.render.text import check_words

        check_words(self.plan)
        container = container_of(
            self.plan,
            self.prepared.host,
            environment=self.exported,
            image=image,
            own_network=own_network,
        )
        if image is not None:
            return container
        return replace(container, image=mirrors.read().image(container.image))

    def dockerfile(self, image: str | None) -> str | None:
        """Return the text that builds the container's image.

        Return None for a published or named image.
        """
        from gaudi_launch.core.base.mirrors import read
        from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
        from gaudi_launch.core.engines.releases import release_of
        from gaudi_launch.core.planning.placement import spans_groups

        release = release_of(self.plan.engine.label, self.plan.engine.version)
        if image is not None or release is None or self.plan.container is not None:
            return None
        if (
            spans_groups(self.prepared.host, self.plan.placement.modules)
            and release.bare_image is not None
        ):
            return dockerfile(release, SetupExtras(read(), scale_out=True))
        if release.whole_image is not None:
            return None
        return dockerfile(release, SetupExtras(read()))


def script(options: LaunchOptions, to: Destination, reporter: Reporter) -> RenderedFiles:
    """Render a bash script that starts the engine. Raises LaunchError."""
    from gaudi_launch.core.render.script import render

    made = to_render(options, to, reporter, carries_files=True)
    rendered = render(made.on_host(reporter), made.exported)
    return _finish(made, "script", rendered, to, force=options.force)


def docker(
    options: LaunchOptions, image: str | None, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render one ``docker run`` as a script. Raises LaunchError."""
    from gaudi_launch.core.render.docker import render
    from gaudi_launch.core.render.text import heading

    made = to_render(options, to, reporter, carries_files=True)
    head, files = heading(made.plan), made.plan.command.files
    container = made.container(image)
    _say_unpublished(made, container, reporter)
    rendered = render(container, made.container_name, head, made.dockerfile(image), files)
    return _finish(made, "docker", rendered, to, force=options.force)


def compose(
    options: LaunchOptions, image: str | None, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render a compose file. Raises LaunchError."""
    from gaudi_launch.core.render.compose import render
    from gaudi_launch.core.render.text import heading

    made = to_render(options, to, reporter)
    container = made.container(image)
    _say_unpublished(made, container, reporter)
    rendered = render(container, made.container_name, heading(made.plan), made.dockerfile(image))
    return _finish(made, "compose", rendered, to, force=options.force)


def quadlet(
    options: LaunchOptions, image: str | None, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render a Quadlet unit. Raises LaunchError."""
    from gaudi_launch.core.render.quadlet import render
    from gaudi_launch.core.render.text import check_words, heading

    made = to_render(options, to, reporter)
    check_words(made.plan, for_systemd=True)
    container = made.container(image)
    _say_unpublished(made, container, reporter)
    rendered = render(container, made.container_name, heading(made.plan), made.dockerfile(image))
    return _finish(made, "quadlet", rendered, to, force=options.force)


def systemd(
    options: LaunchOptions, unit: SystemdOptions, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render a systemd unit. Raises LaunchError."""
    from gaudi_launch.core.render.systemd import render

    made = to_render(options, to, reporter)
    rendered = render(made.on_host(reporter), made.name, made.exported, unit_options(unit))
    return _finish(made, "systemd", rendered, to, force=options.force)


class _Once(Silent):
    """Says each line once: replicas have the same warnings."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self._said: set[str] = set()

    def say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._inner.say(line)


def compose_several(
    file: Path,
    read: ReadPlans,
    options: LaunchOptions,
    image: str | None,
    to: Destination,
    reporter: Reporter,
) -> RenderedFiles:
    """Render all plans of a file as a compose file with the gateway's files.

    Raises LaunchError.
    """
    from gaudi_launch.core.render.compose import ComposeEngine, mounted, render_several

    _refuse_name(to)
    several = read(file, options)
    engines = _engines(several, to, reporter)
    secrets = several.gateway.secrets
    place = replace(several.gateway, urls=_urls(engines), secrets=mounted(secrets))
    rendered = render_several(
        several.name,
        several.head,
        [
            ComposeEngine(made.name, made.container(image), made.dockerfile(image), named.after)
            for named, made in zip(several.plans, engines, strict=True)
        ],
        several.files_at(place),
        secrets,
    )
    to = replace(to, name=several.name)
    return _finish_several(engines, "compose", rendered, to, force=options.force)


def systemd_several(
    file: Path,
    read: ReadPlans,
    options: LaunchOptions,
    unit: SystemdOptions,
    to: Destination,
    reporter: Reporter,
) -> RenderedFiles:
    """Render all plans of a file as units with a target for all. Raises LaunchError."""
    from gaudi_launch.core.render.gateway import GATEWAY_FOLDER
    from gaudi_launch.core.render.systemd import UnitEngine, render_several, run_folder

    _refuse_name(to)
    several = read(file, options)
    engines = _engines(several, to, reporter)
    place = replace(
        several.gateway,
        urls=_urls(engines),
        folder=str(Path(to.output or ".").expanduser().absolute() / GATEWAY_FOLDER),
        run_folder=run_folder(several.name),
    )
    gateway = several.files_at(place)
    units = [
        UnitEngine(made.name, made.on_host(reporter), made.exported, named.after)
        for named, made in zip(several.plans, engines, strict=True)
    ]
    rendered = render_several(several.name, several.head, units, gateway, unit_options(unit))
    to = replace(to, name=several.name)
    return _finish_several(engines, "systemd", rendered, to, force=options.force)


def _engines(several: NamedPlans, to: Destination, reporter: Reporter) -> list[PlanToRender]:
    """Return all engines with their plans; each has a folder for its files."""
    once = _Once(reporter)
    found = []
    for number, each in enumerate(several.plans):
        options = replace(each.options, port=_FIRST_PORT + number)
        folder = None if to.output is None else str(Path(to.output) / each.name)
        own = replace(to, output=folder, name=each.name)
        found.append(to_render(options, own, once, placement=each.plan.placement))
    return found


def _urls(engines: list[PlanToRender]) -> dict[str, str]:
    """Return the engines' addresses on their machine, by name."""
    return {made.name: made.plan.url for made in engines}


def _finish_several(
    engines: list[PlanToRender], target: str, rendered: Rendered, to: Destination, *, force: bool
) -> RenderedFiles:
    """Deliver the rendered text with the files of all plans."""
    files = dict(rendered.files)
    for made in engines:
        files |= {f"{made.name}/{name}": content for name, content in made.files.items()}
    return deliver(replace(rendered, files=files), target, to, force=force)


def _refuse_name(to: Destination) -> None:
    """Raise LaunchError (USAGE) for a name: that of a stack is in its file."""
    if to.name is not None:
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--name", other="--stack")


def refuse_beside(options: LaunchOptions, name: str, allowed: Sequence[str] = ()) -> None:
    """Raise LaunchError (USAGE) for launch options with one that replaces the model.

    ``allowed`` are fields of the options.
    """
    given = [each.names[0] for field, each in options.options_given() if field not in allowed]
    if options.extra:
        given.append("--")
    if given:
        one = ", ".join(given)
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=one, other=name)


def unit_options(unit: SystemdOptions) -> UnitOptions:
    """Return the options of a unit on this machine."""
    from gaudi_launch.core.render.systemd import UnitOptions

    owner = unit.run_as or _this_user()
    return UnitOptions(
        user=unit.user,
        run_as=None if owner == "root" else owner,
        launcher=_launcher() if unit.with_tuning else None,
    )


def _this_user() -> str:
    """Return the user's name, or number without a name (in a container)."""
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _launcher() -> str:
    """Return the path of this program."""
    import shutil
    import sys

    beside = Path(sys.executable).with_name("gaudi-launch")
    return shutil.which("gaudi-launch") or str(beside)


def to_render(
    options: LaunchOptions,
    to: Destination,
    reporter: Reporter,
    *,
    carries_files: bool = False,
    placement: Placement | None = None,
) -> PlanToRender:
    """Plan as ``plan`` does, with what a file needs.

    That is absolute paths, a name, and the plan's files at their paths. ``carries_files``: the
    rendered text writes those files itself. ``placement``: the cards, where they were chosen.
    """
    import shutil

    from gaudi_launch.core.launch.prepared import refuse_simulated
    from gaudi_launch.core.launch.route import prepare
    from gaudi_launch.core.render.text import with_exported, with_files
    from gaudi_launch.core.services.listener import address
    from gaudi_launch.core.services.state import store

    if to.name is not None:
        store.check_name(to.name)
    wanted = absolute_paths(options)
    here = options.machine is None
    prepared = prepare(wanted, in_image=here and is_elsewhere(options.python, here=True))
    refuse_simulated(prepared)
    plan = prepared.plan(placement)
    plan = prepared.with_cache(plan)
    if plan.command.files and to.output is None and not carries_files:
        raise LaunchError("render.needs_folder", ExitCode.USAGE, count=len(plan.command.files))
    program = shutil.which(plan.command.argv[0]) if here else None
    plan = with_exported(_with_program(plan, program), prepared.request.environment)
    files: Mapping[str, str] = {}
    if not carries_files:
        plan, files = with_files(plan, Path(to.output or ".").expanduser())
    _host, port = address(plan.url)
    choice = plan.placement.choice
    if choice is not None:
        reporter.say(choice.render())
    for warning in plan.warnings:
        reporter.say(warning.render())
    name = to.name or store.default_name(prepared.model.name, str(port))
    return PlanToRender(prepared, plan, name, dict(files))


def _say_unpublished(made: PlanToRender, container: Container, reporter: Reporter) -> None:
    """Report that a container's image must be built first, with the command."""
    from gaudi_launch.core.engines.registry import setup_image

    engine = made.plan.engine.name
    if container.image == setup_image(engine):
        reporter.say(text("render.build_first", image=container.image, engine=engine))


def absolute_paths(options: LaunchOptions) -> LaunchOptions:
    """Return the options with absolute paths."""

    def absolute(path: str | None) -> str | None:
        if path:
            return str(Path(path).expanduser().absolute())
        return path

    model = options.model
    if model and Path(model).expanduser().is_dir():
        model = absolute(model)
    return replace(
        options,
        model=model,
        quant_config=absolute(options.quant_config),
        cache_dir=absolute(options.cache_dir),
    )


def _with_program(plan: Plan, program: str | None) -> Plan:
    """Return the plan with its interpreter's absolute path, if known."""
    if program is None:
        return plan
    return replace(plan, command=replace(plan.command, argv=(program, *plan.command.argv[1:])))


def _finish(
    made: PlanToRender, target: str, rendered: Rendered, to: Destination, *, force: bool
) -> RenderedFiles:
    """Deliver the rendered text with the plan's files."""
    complete = replace(rendered, files={**rendered.files, **made.files})
    return deliver(complete, target, replace(to, name=made.name), force=force)
