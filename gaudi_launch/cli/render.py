"""``gaudi-launch render TARGET``: the plan that serve would run, as a file for another home. Starts nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared
from gaudi_launch.cli.render_kubernetes import kubernetes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gaudi_launch.cli.options import Prepared
    from gaudi_launch.planning.container import Container
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.render.records import Rendered

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Write the plan that serve would run as a script, a container or a unit; nothing is started.",
)

app.command("kubernetes")(kubernetes)

OUTPUT = typer.Option(None, "--to", metavar="DIR|FILE", help="Where to write (default: stdout).")
NAME = typer.Option(None, "--name", help="The service's name (default: from model and port).")
IMAGE = typer.Option(None, "--image", help="Container image (default: the engine's own).")
JSON = typer.Option(False, "--json", help="The files as one JSON object.")


@dataclass(frozen=True)
class Made:
    """A plan ready to be rendered. ``files`` are texts that belong to it, by name; ``live`` is a plan for this
    machine."""

    prepared: Prepared
    plan: Plan
    name: str
    files: dict[str, str]
    live: bool

    @property
    def container_name(self) -> str:
        """The name as containers take it."""
        from gaudi_launch.render.container import container_name

        return container_name(self.name)

    @property
    def exported(self) -> dict[str, str]:
        """What the user exported."""
        return dict(self.prepared.request.environment)

    def container(self, image: str | None, *, own_network: bool = False) -> Container:
        """The plan as a container."""
        from gaudi_launch.render.container import container_of
        from gaudi_launch.render.text import check_words

        check_words(self.plan)
        return container_of(
            self.plan,
            self.prepared.host,
            environment=self.exported,
            image=image,
            own_network=own_network,
        )

    def dockerfile(self, image: str | None) -> str | None:
        """The text that builds the container's image, None for one that is published or was named."""
        from gaudi_launch.engines.recipe import Wishes, dockerfile
        from gaudi_launch.engines.releases import label, release_of

        release = release_of(label(self.plan.engine), self.plan.engine.version)
        if image is not None or release is None or release.whole_image is not None:
            return None
        return dockerfile(release, Wishes())


def make(asked: dict[str, Any], name: str | None, output: str | None, *, carries_files: bool = False) -> Made:
    """Plan as ``plan`` does, with what a file needs: whole paths, a name, the plan's own files in their place.

    ``carries_files``: what is rendered writes those files itself.
    """
    import shutil
    from pathlib import Path

    from gaudi_launch.cli.options import prepare
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.render.text import with_exported, with_files
    from gaudi_launch.services import state
    from gaudi_launch.services.launch import address

    if name is not None:
        state.check_name(name)
    wanted = _whole_paths(asked)
    live = asked["machine"] is None
    # of another machine's interpreter only the path is known
    elsewhere = None if live or not wanted["python"] or shutil.which(wanted["python"]) else wanted["python"]
    prepared = prepare({**wanted, "python": None} if elsewhere else wanted, must_exist=False)
    plan = prepared.plan()
    cached = prepared.cached(plan)
    plan = cached.plan if cached is not None else plan
    if plan.command.files and output is None and not carries_files:
        raise LaunchError("render.needs_folder", ExitCode.USAGE, count=len(plan.command.files))
    program = elsewhere or (shutil.which(plan.command.argv[0]) if live else None)
    plan = with_exported(_with_program(plan, program), prepared.request.environment)
    files: Mapping[str, str] = {}
    if not carries_files:
        plan, files = with_files(plan, Path(output or ".").expanduser())
    _host, port = address(plan.url)
    made = Made(prepared, plan, name or state.default_name(prepared.model.name, str(port)), dict(files), live)
    for warning in plan.warnings:
        _say(warning.render())
    return made


def _whole_paths(asked: dict[str, Any]) -> dict[str, Any]:
    """The options with paths that mean the same in any folder."""
    from pathlib import Path

    whole = dict(asked)
    for field in ("model", "quant_config", "cache_dir"):
        value = whole[field]
        if value and (field != "model" or Path(value).expanduser().is_dir()):
            whole[field] = str(Path(value).expanduser().absolute())
    return whole


def _with_program(plan: Plan, program: str | None) -> Plan:
    """The plan with its interpreter's whole path, where that is known."""
    from dataclasses import replace

    if program is None:
        return plan
    return replace(plan, command=replace(plan.command, argv=(program, *plan.command.argv[1:])))


def finish(made: Made, target: str, rendered: Rendered, output: str | None, force: bool, as_json: bool) -> None:
    """Print or write what was rendered, with the plan's own files."""
    from dataclasses import replace

    whole = replace(rendered, files={**rendered.files, **made.files})
    hand_over(whole, target, made.name, output, force, as_json)


def hand_over(rendered: Rendered, target: str, name: str, output: str | None, force: bool, as_json: bool) -> None:
    """Print or write what was rendered; the one end of every target."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.render.files import write

    written: list[Path] = []
    if output is not None:
        written = write(rendered, output, force=force)
    elif len(rendered.files) > 1 and not as_json:
        raise LaunchError("render.several", ExitCode.USAGE, target=target, files=", ".join(rendered.files))
    if as_json:
        emit_json(
            {
                "schema": 1,
                "target": target,
                "name": name,
                "files": [
                    {"name": file, "executable": file in rendered.executable, "text": content}
                    for file, content in rendered.files.items()
                ],
                "written": [str(path) for path in written],
                "notes": [{"id": note.id, "message": note.render()} for note in rendered.notes],
            }
        )
        return
    if output is None:
        sys.stdout.write(next(iter(rendered.files.values())))
    for path in written:
        typer.echo(str(path))
    for note in rendered.notes:
        _say(f"{text('render.word_note')}: {note.render()}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@app.command()
@shared
def script(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    as_json: bool = JSON,
) -> None:
    """A bash script that starts the engine, bound to its CPUs; it runs without gaudi-launch."""
    from gaudi_launch.render.script import render

    made = make(asked, name, output, carries_files=True)
    finish(made, "script", render(made.plan, made.exported), output, asked["force"], as_json)


@app.command()
@shared
def env(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    as_json: bool = JSON,
) -> None:
    """env.sh with the variables, and config.yml with the options for 'vllm serve --config'."""
    from gaudi_launch.render.env import render

    made = make(asked, name, output)
    finish(made, "env", render(made.plan, made.exported), output, asked["force"], as_json)


@app.command()
@shared
def docker(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    image: str | None = IMAGE,
    as_json: bool = JSON,
) -> None:
    """One 'docker run' with its cards, as a script; it builds the image where nobody publishes one."""
    from gaudi_launch.render.docker import render
    from gaudi_launch.render.text import heading

    made = make(asked, name, output, carries_files=True)
    head, files = heading(made.plan), made.plan.command.files
    rendered = render(made.container(image), made.container_name, head, made.dockerfile(image), files)
    finish(made, "docker", rendered, output, asked["force"], as_json)


@app.command()
@shared
def compose(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    image: str | None = IMAGE,
    as_json: bool = JSON,
) -> None:
    """A compose file with one service and its health check."""
    from gaudi_launch.render.compose import render
    from gaudi_launch.render.text import heading

    made = make(asked, name, output)
    rendered = render(made.container(image), made.container_name, heading(made.plan), made.dockerfile(image))
    finish(made, "compose", rendered, output, asked["force"], as_json)


@app.command()
@shared
def quadlet(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    image: str | None = IMAGE,
    as_json: bool = JSON,
) -> None:
    """A Quadlet unit: podman runs the container, systemd keeps it."""
    from gaudi_launch.render.quadlet import render
    from gaudi_launch.render.text import check_words, heading

    made = make(asked, name, output)
    check_words(made.plan, for_systemd=True)
    rendered = render(made.container(image), made.container_name, heading(made.plan), made.dockerfile(image))
    finish(made, "quadlet", rendered, output, asked["force"], as_json)


@app.command()
@shared
def systemd(
    asked: dict[str, Any],
    output: str | None = OUTPUT,
    name: str | None = NAME,
    user: bool = typer.Option(False, "--user", help="A unit for 'systemctl --user'."),
    run_as: str | None = typer.Option(
        None, "--run-as", metavar="USER", help="The system unit's user (default: you)."
    ),
    with_tuning: bool = typer.Option(
        False, "--with-tuning", help="Also a unit that runs 'doctor --fix' before it."
    ),
    as_json: bool = JSON,
) -> None:
    """A service for systemd that is active when the engine answers."""
    import getpass

    from gaudi_launch.render.systemd import render

    made = make(asked, name, output)
    owner = run_as or getpass.getuser()
    rendered = render(
        made.plan,
        made.name,
        made.exported,
        user=user,
        run_as=None if owner == "root" else owner,
        launcher=_launcher() if with_tuning else None,
    )
    finish(made, "systemd", rendered, output, asked["force"], as_json)


def _launcher() -> str:
    """Our own program's path."""
    import shutil
    from pathlib import Path

    beside = Path(sys.executable).with_name("gaudi-launch")
    return shutil.which("gaudi-launch") or str(beside)
