"""The targets of ``render`` on one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gaudi_launch.commands.render.case import (
    PlanToRender,
    RenderTarget,
    SeveralTarget,
    SeveralToRender,
)
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.setups import setup_image
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render import compose, docker, quadlet, script, systemd
from gaudi_launch.core.render.deliver import Destination
from gaudi_launch.core.render.gateway import GATEWAY_FOLDER
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.text import check_words, heading


class ScriptTarget(RenderTarget[None]):
    """A bash script that starts the engine."""

    name = "script"
    carries_files = True

    def one(self, made: PlanToRender, options: None, reporter: Reporter) -> Rendered:
        """Render one plan."""
        return script.render(made.on_host(reporter), made.exported)


class DockerTarget(RenderTarget[str | None]):
    """One ``docker run`` as a script, with an image of the user or None."""

    name = "docker"
    carries_files = True

    def one(self, made: PlanToRender, image: str | None, reporter: Reporter) -> Rendered:
        """Render one plan."""
        container = _container(made, image, reporter)
        build, files = made.dockerfile(image), made.plan.command.files
        return docker.render(container, made.container_name, heading(made.plan), build, files)


class QuadletTarget(RenderTarget[str | None]):
    """A Quadlet unit, with an image of the user or None."""

    name = "quadlet"

    def one(self, made: PlanToRender, image: str | None, reporter: Reporter) -> Rendered:
        """Render one plan."""
        check_words(made.plan, for_systemd=True)
        container = _container(made, image, reporter)
        build = made.dockerfile(image)
        return quadlet.render(container, made.container_name, heading(made.plan), build)


class ComposeTarget(SeveralTarget[str | None]):
    """A compose file, with an image of the user or None."""

    name = "compose"

    def one(self, made: PlanToRender, image: str | None, reporter: Reporter) -> Rendered:
        """Render one plan."""
        container = _container(made, image, reporter)
        build = made.dockerfile(image)
        return compose.render(container, made.container_name, heading(made.plan), build)

    def several(
        self, several: SeveralToRender, image: str | None, to: Destination, reporter: Reporter
    ) -> Rendered:
        """Render all plans of a file with their gateway."""
        read = several.read
        engines = [
            compose.ComposeEngine(made.name, made.container(image), made.dockerfile(image), after)
            for made, after in several.in_order()
        ]
        secrets = read.gateway.secrets
        gateway = read.files_at(replace(several.place, secrets=compose.mounted(secrets)))
        return compose.render_several(read.name, read.head, engines, gateway, secrets)


class SystemdTarget(SeveralTarget[systemd.UnitOptions]):
    """Units of systemd; the options are those of each."""

    name = "systemd"

    def one(self, made: PlanToRender, options: systemd.UnitOptions, reporter: Reporter) -> Rendered:
        """Render one plan."""
        return systemd.render(made.on_host(reporter), made.name, made.exported, options)

    def several(
        self,
        several: SeveralToRender,
        options: systemd.UnitOptions,
        to: Destination,
        reporter: Reporter,
    ) -> Rendered:
        """Render all plans of a file with their gateway, and a target for all."""
        read = several.read
        engines = [
            systemd.UnitEngine(made.name, made.on_host(reporter), made.exported, after)
            for made, after in several.in_order()
        ]
        folder = Path(to.output or ".").expanduser().absolute() / GATEWAY_FOLDER
        place = replace(several.place, folder=str(folder), run_folder=systemd.run_folder(read.name))
        gateway = read.files_at(place)
        return systemd.render_several(read.name, read.head, engines, gateway, options)


def unit_options(
    *, user: bool = False, run_as: str | None = None, with_tuning: bool = False
) -> systemd.UnitOptions:
    """Return the options of a unit on this machine.

    ``user``: for ``systemctl --user``. ``run_as``: the user of the service (None: this one).
    ``with_tuning``: it starts after ``doctor --fix``.
    """
    owner = run_as or _this_user()
    return systemd.UnitOptions(
        user=user,
        run_as=None if owner == "root" else owner,
        launcher=_launcher() if with_tuning else None,
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
    import shutil
    import sys

    beside = Path(sys.executable).with_name("gaudi-launch")
    return shutil.which("gaudi-launch") or str(beside)


def _container(made: PlanToRender, image: str | None, reporter: Reporter) -> Container:
    """Return a plan's container; report that its image must be built first."""
    container = made.container(image)
    engine = made.plan.engine.name
    if container.image == setup_image(engine):
        reporter.say(text("render.build_first", image=container.image, engine=engine))
    return container
