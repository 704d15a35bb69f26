"""``gaudi-launch render TARGET``: the plan that serve would run, as a file for another home. Starts nothing."""

from __future__ import annotations

import sys
from typing import Any

import typer

from gaudi_launch.cli.options import shared
from gaudi_launch.cli.render_case import finish, make
from gaudi_launch.cli.render_kubernetes import kubernetes

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
    from gaudi_launch.render.systemd import render

    made = make(asked, name, output)
    owner = run_as or _you()
    rendered = render(
        made.plan,
        made.name,
        made.exported,
        user=user,
        run_as=None if owner == "root" else owner,
        launcher=_launcher() if with_tuning else None,
    )
    finish(made, "systemd", rendered, output, asked["force"], as_json)


def _you() -> str:
    """The user's name, or number where it has no name (in a container)."""
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _launcher() -> str:
    """Our own program's path."""
    import shutil
    from pathlib import Path

    beside = Path(sys.executable).with_name("gaudi-launch")
    return shutil.which("gaudi-launch") or str(beside)
