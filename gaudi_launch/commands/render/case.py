"""The use cases of ``gaudi-launch render``: a plan as files, by target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import switch, value
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.detect import is_elsewhere
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.planning.placement import spans_groups
from gaudi_launch.core.render.deliver import Destination, RenderedFiles, deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gaudi_launch.core.launch.named_plans import NamedPlans
    from gaudi_launch.core.launch.prepared import Prepared
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.placement import Placement
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.render.gateway import GatewayPlace
    from gaudi_launch.core.render.rendered import Rendered

_OUTPUT = "Output"
Options = TypeVar("Options")
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


class RenderTarget(ABC, Generic[Options]):
    """A target of ``render`` and the type of its options.

    ``carries_files``: its text writes the plan's files itself.
    """

    name: ClassVar[str]
    carries_files: ClassVar[bool] = False

    @abstractmethod
    def one(self, made: PlanToRender, options: Options, reporter: Reporter) -> Rendered:
        """Render one plan. Raises LaunchError for one that it cannot express."""


class SeveralTarget(RenderTarget[Options]):
    """A target that takes several plans with the gateway in front of them."""

    @abstractmethod
    def several(
        self, several: SeveralToRender, options: Options, to: Destination, reporter: Reporter
    ) -> Rendered:
        """Render all plans of a file with their gateway. Raises LaunchError."""


@dataclass(frozen=True)
class SeveralToRender:
    """The plans of a file with the data for files."""

    read: NamedPlans
    engines: tuple[PlanToRender, ...]

    @property
    def place(self) -> GatewayPlace:
        """Return the gateway's place with the engines' addresses on their machine."""
        urls = {made.name: made.plan.url for made in self.engines}
        return replace(self.read.gateway, urls=urls)

    def in_order(self) -> Iterator[tuple[PlanToRender, tuple[str, ...]]]:
        """Yield each engine with the engines that it waits for."""
        for named, made in zip(self.read.plans, self.engines, strict=True):
            yield made, named.after


def render(
    target: RenderTarget[Options],
    own: Options,
    options: LaunchOptions,
    to: Destination,
    reporter: Reporter,
) -> RenderedFiles:
    """Render one plan to a target with its options (``own``). Raises LaunchError."""
    made = to_render(options, to, reporter, carries_files=target.carries_files)
    rendered = target.one(made, own, reporter)
    complete = replace(rendered, files={**rendered.files, **made.files})
    return deliver(complete, target.name, replace(to, name=made.name), force=options.force)


def render_file(
    target: SeveralTarget[Options],
    own: Options,
    read: Callable[[LaunchOptions], NamedPlans],
    options: LaunchOptions,
    to: Destination,
    reporter: Reporter,
) -> RenderedFiles:
    """Render all plans of a file with their gateway to a target. Raises LaunchError."""
    if to.name is not None:  # the file has the name
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--name", other="--stack")
    named = read(options)
    several = SeveralToRender(named, tuple(_engines(named, to, reporter)))
    rendered = target.several(several, own, to, reporter)
    files = dict(rendered.files)
    for made in several.engines:
        files |= {f"{made.name}/{name}": content for name, content in made.files.items()}
    complete = replace(rendered, files=files)
    return deliver(complete, target.name, replace(to, name=named.name), force=options.force)


class _Once(Silent):
    """Says each line once: replicas have the same warnings."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self._said: set[str] = set()

    def say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._inner.say(line)


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

    from gaudi_launch.core.launch.prepared import prepare, refuse_simulated
    from gaudi_launch.core.launch.recipe_cache import with_cache
    from gaudi_launch.core.render.text import with_exported, with_files
    from gaudi_launch.core.services.addresses import address
    from gaudi_launch.core.services.state import store

    if to.name is not None:
        store.check_name(to.name)
    here = options.machine is None
    prepared = prepare(options, in_image=here and is_elsewhere(options.python, here=True))
    refuse_simulated(prepared)
    plan = with_cache(prepared, prepared.plan(placement))
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


def _with_program(plan: Plan, program: str | None) -> Plan:
    """Return the plan with its interpreter's absolute path, if known."""
    if program is None:
        return plan
    return replace(plan, command=replace(plan.command, argv=(program, *plan.command.argv[1:])))
