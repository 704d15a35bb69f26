"""``gaudi-launch setup``: make an engine environment, step by step.

Completed steps are not repeated.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.commands.setup.case import (
    SetupResult,
    install,
    leftovers_of,
    pin_notes,
    roll_back,
)
from gaudi_launch.commands.setup.view import leftovers_json, show_leftovers, show_rollback
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import Mirrors, read
from gaudi_launch.core.engines.entries import is_made_by_steps, setup_name, setup_names
from gaudi_launch.core.engines.install import environment
from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.engines.install.environment import PLACES
from gaudi_launch.core.engines.install.install_steps import SetupExtras
from gaudi_launch.core.engines.install.installation import (
    ImageRecipe,
    ImageRequest,
    StepInstallation,
)
from gaudi_launch.core.engines.install.step_runner import mirrored
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import known
from gaudi_launch.core.engines.setups import image_recipe, made_by_steps
from gaudi_launch.core.planning.container import PROGRAMS

app = CommandApp()


@app.command()
def setup(
    engine: str | None = typer.Argument(
        None,
        metavar="ENGINE",
        help="cpu (embedded), ray (with Ray Serve), gateway, or one of 'gaudi-launch engines'.",
    ),
    place: str | None = typer.Option(
        None,
        "--in",
        metavar="venv|docker|podman",
        help="A virtual environment, or a container image (tgi: docker or podman).",
    ),
    base_image: str | None = typer.Option(
        None,
        "--base-image",
        metavar="IMAGE",
        help="cpu --in docker|podman: the image with Python 3.11 or newer to build on.",
    ),
    python: str | None = typer.Option(
        None,
        "--python",
        metavar="PATH",
        help="The Python with Gaudi's PyTorch (default: python3 on PATH).",
    ),
    index_url: str | None = typer.Option(
        None, "--index-url", metavar="URL", help="A mirror for pip."
    ),
    torch_index: str | None = typer.Option(
        None, "--torch-index", metavar="URL", help="cpu: a mirror of PyTorch's CPU builds."
    ),
    registry: str | None = typer.Option(
        None, "--registry", metavar="HOST[/PATH]", help="A mirror of the registry of images."
    ),
    git_mirror: str | None = typer.Option(
        None, "--git-mirror", metavar="URL", help="A mirror of https://github.com/."
    ),
    vision: bool = typer.Option(False, "--vision", help="Install Pillow-SIMD (for vision models)."),
    unpinned: bool = typer.Option(
        False,
        "--unpinned",
        help="Let pip choose the newest packages instead of the resolved versions.",
    ),
    scale_out: bool = typer.Option(
        False,
        "--scale-out",
        help="Install libfabric, the HCCL wrapper and hccl_demo for host network cards (as root).",
    ),
    rollback: bool = typer.Option(
        False,
        "--rollback",
        help="Return to the version that was in force before; nothing is installed.",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands and run nothing."),
    no_demo: bool = typer.Option(
        False, "--no-demo", help="cpu: install the engine only, without the demo model."
    ),
    as_json: bool = JSON,
) -> None:
    """Prepare an engine environment. Run again after an interruption to resume.

    A new version is installed next to the one in force, tried, and then put in force at once.
    """
    given: dict[str, object] = {"--in": place, "--python": python}
    given |= {
        "--vision": vision,
        "--scale-out": scale_out,
        "--unpinned": unpinned,
        "--base-image": base_image,
    }
    if rollback:
        given |= {"--index-url": index_url, "--no-demo": no_demo}
        given |= {"--torch-index": torch_index, "--registry": registry, "--git-mirror": git_mirror}
        _check_not_given(given, "setup.not_with_rollback")
        return show_rollback(roll_back(engine, dry_run=dry_run), dry_run, as_json)
    if engine is None:
        raise LaunchError(
            "setup.no_engine", ExitCode.USAGE, known=", ".join((*setup_names(), *known()))
        )
    mirrors = read(
        {"pip": index_url, "torch": torch_index, "registry": registry, "git": git_mirror}
    )
    engine = setup_name(engine)
    extras = SetupExtras(mirrors, vision, scale_out, unpinned=unpinned)
    if not is_made_by_steps(engine):
        given = {"--torch-index": torch_index, "--base-image": base_image}
        _check_not_given(given, "setup.not_for", engine=engine)
        return _gaudi(engine, place, python, extras, dry_run, as_json)
    made = made_by_steps(engine)
    given["--git-mirror"] = git_mirror
    image = image_recipe(engine)
    if image is not None and place in PROGRAMS:
        del given["--in"], given["--base-image"]
        _check_not_given(given, "setup.not_for", engine=engine)
        chosen = mirrors.image(image.base(base_image, os.environ))
        request = ImageRequest(str(place), chosen, mirrors, demo=not no_demo)
        return _build_image(engine, image, request, dry_run, as_json)
    given |= {"--registry": registry, "--torch-index": torch_index}
    given = {flag: value for flag, value in given.items() if flag not in made.takes}
    _check_not_given(given, "setup.not_for", engine=engine)
    if place not in (None, *PLACES):
        _refuse_place(str(place))
    return _by_steps(made, engine, mirrors, demo=not no_demo, dry_run=dry_run, as_json=as_json)


def _refuse_place(place: str) -> NoReturn:
    known = ", ".join(PLACES)
    raise LaunchError("setup.place", ExitCode.USAGE, found=place, known=known)


def _check_not_given(given: dict[str, object], id: str, **values: str) -> None:
    """Raise LaunchError (USAGE) for an option that does not apply."""
    for flag, value in given.items():
        if value not in (None, False):
            raise LaunchError(id, ExitCode.USAGE, flag=flag, **values)


def _gaudi(
    engine: str, place: str | None, python: str | None, extras: Any, dry_run: bool, as_json: bool
) -> None:
    """Set up an engine for Gaudi: in a virtual environment or an image."""
    release = needed_release(engine)
    if not place:
        # a virtual environment takes its PyTorch from this image
        place = "docker" if release.bare_image is None else "venv"
    if place not in environment.PLACES:
        _refuse_place(place)
    if python is not None and place in PROGRAMS:
        raise LaunchError("setup.not_in", ExitCode.USAGE, flag="--python", place=place)
    base = python or shutil.which("python3") or "python3"
    # an image has the mirrors in its file
    variables: dict[str, str] = {}
    if place in PROGRAMS:
        recipe = environment.in_image(release, extras, place)
    else:
        recipe = environment.in_venv(release, base, extras)
        variables = extras.mirrors.variables(os.environ)
    if dry_run:
        return _show(
            [(step.id, step.argv) for step in recipe.steps], recipe.files, as_json, variables
        )
    environment.check(recipe, base, extras)
    begin = time.monotonic()
    if environment.remembered(recipe) < len(recipe.steps):
        say(text("setup.log", path=str(recipe.folder / environment.LOG)))
        for line in pin_notes(release, recipe):
            say(line)
    done = install(recipe, say, extras.mirrors)
    seconds = round(time.monotonic() - begin, 1)
    if as_json:
        document = {
            "schema": 1,
            "engine": engine,
            "place": place,
            "python": done.python,
            "image": done.image,
        }
        document |= {"steps_run": done.steps_run, "seconds": seconds}
        return emit_json(document | leftovers_json(done.replaced))
    return _show_done(done, engine, place, scale_out=extras.scale_out)


def _show_done(done: SetupResult, engine: str, place: str, *, scale_out: bool) -> None:
    if not done.steps_run and done.replaced is None:
        typer.echo(text("setup.there"))
    if done.image is not None:
        typer.echo(text("setup.done_image", image=done.image, engine=engine, program=place))
    else:
        typer.echo(text("setup.done_venv", python=str(done.python)))
    show_leftovers(done.replaced)
    if scale_out and done.image is None:
        typer.echo(text("setup.scale_out"))


def _build_image(
    engine: str, image: ImageRecipe, request: ImageRequest, dry_run: bool, as_json: bool
) -> None:
    if dry_run:
        planned = image.planned(request, os.environ)
        return _show([(step.id, step.argv) for step in planned], {}, as_json)
    begin = time.monotonic()
    steps_run = image.build(request, os.environ, say)
    seconds = time.monotonic() - begin
    if as_json:
        document: dict[str, Any] = {
            "schema": 1,
            "engine": engine,
            "place": request.program,
            "image": image.image,
            "demo": _demo_dir(request.demo),
            "steps_run": steps_run,
            "seconds": round(seconds, 1),
        }
        return emit_json(document)
    if not steps_run:
        typer.echo(text("setup.there"))
    typer.echo(text("setup.done_image", image=image.image, engine=engine, program=request.program))
    return None


def _by_steps(
    made: StepInstallation,
    engine: str,
    mirrors: Mirrors,
    *,
    demo: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set up the embedded engine and its demo model, Ray Serve or the gateway."""
    if dry_run:
        steps = mirrored(made.missing(demo=demo), mirrors)
        if not steps and not as_json:
            typer.echo(text("setup.there"))
        files = {path: content for step in steps for path, content in step.files.items()}
        return _show([(step.id, step.argv) for step in steps], files, as_json)
    begin = time.monotonic()
    old = made.setup(say, demo=demo, mirrors=mirrors)
    seconds = time.monotonic() - begin
    replaced = leftovers_of(made, old)
    if as_json:
        document: dict[str, Any] = {"schema": 1, "engine": engine, **made.facts()}
        if "--no-demo" in made.takes:
            document["demo"] = _demo_dir(demo)
        document["seconds"] = round(seconds, 1)
        return emit_json(document | leftovers_json(replaced))
    typer.echo(made.done(round(seconds)).render())
    show_leftovers(replaced)
    return None


def _demo_dir(is_wanted: bool) -> str | None:
    """Return the demo model's folder; None where it was not requested."""
    if not is_wanted:
        return None
    return str(demo_dir())


def _show(
    steps: list[tuple[str, tuple[str, ...]]],
    files: dict[Any, str],
    as_json: bool,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Show the commands and the variables that they get, without running them."""
    if as_json:
        document: dict[str, Any] = {
            "schema": 1,
            "steps": [{"id": id, "argv": list(argv)} for id, argv in steps],
        }
        if files:
            document["files"] = {str(path): content for path, content in files.items()}
        if variables:
            document["environment"] = dict(variables)
        return emit_json(document)
    for name, value in (variables or {}).items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    for path, content in files.items():
        typer.echo(f"# {path}:")
        typer.echo("".join(f"#   {line}\n" for line in content.splitlines()), nl=False)
    for id, argv in steps:
        typer.echo(f"# {text(id)}")
        if argv:
            typer.echo(shlex.join(argv))
    return None
