"""``gaudi-launch ray``: Serve configs, their check, and a deployment's state."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand

app = CommandApp(
    no_args_is_help=True, help="Print or check a Ray Serve config, or read a deployment's state."
)


@app.command(cls=RecordCommand)
def config(
    out: Path | None = typer.Option(
        None, "--out", metavar="FILE", help="Write to this file instead of stdout."
    ),
    options: LaunchOptions = Launch,
) -> None:
    """Print the planned deployment as a Serve config, for a running Ray: serve deploy FILE."""
    from dataclasses import replace

    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.engines.ray_serve.config import as_yaml
    from gaudi_launch.engines.ray_serve.engine import IN_RAY, config_of
    from gaudi_launch.engines.registry import is_ray, ray_engine
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    engine = ray_engine(options.engine)
    if not is_ray(engine):
        raise LaunchError("ray.only_config", ExitCode.USAGE, found=engine)
    prepared = prepare(replace(options, engine=engine))
    # the bucket file is not where this YAML is deployed: the engine gets one of its strategies
    plan = replace(prepared, request=replace(prepared.request, files_dir="")).plan()
    yaml = as_yaml(config_of(plan), plan.command.env, str(IN_RAY))
    if out is None:
        typer.echo(yaml, nl=False)
        return
    try:
        out.write_text(yaml, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("ray.cannot_write", ExitCode.FAILED, path=str(out), why=why) from None
    typer.echo(text("ray.written", path=out))
    typer.echo(text("ray.same_place", folder=IN_RAY))


@app.command()
def check(
    file: Path = typer.Argument(..., metavar="FILE", help="A Serve config (YAML)."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Check a Serve config for settings that Ray silently ignores: unknown keys, wrong types,
    conflicts."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.engines.ray_serve import schema
    from gaudi_launch.engines.ray_serve.config import read_yaml
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("ray.cannot_read", ExitCode.USAGE, path=str(file), why=why) from None
    found = schema.check(read_yaml(content, str(file)))
    if as_json:
        problems = [{"id": m.id, "message": m.render(), "values": dict(m.values)} for m in found]
        emit_json({"schema": 1, "file": str(file), "problems": problems})
    else:
        for problem in found:
            typer.echo(problem.render())
        if not found:
            typer.echo(text("ray.sound", path=file))
    if found:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def status(
    name: str | None = typer.Argument(
        None, metavar="[SERVICE]", help="The service (default: the running one)."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show the state of a running Ray Serve deployment: applications, replicas, addresses."""
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.messages import text
    from gaudi_launch.services import ray_status

    found = ray_status.read(ray_status.running(name))
    if as_json:
        return emit_json(found.to_json())
    out = console()
    out.print(
        text("ray.status_of", name=found.service, url=found.url, dashboard=found.dashboard),
        markup=False,
    )
    columns = [
        text(f"ray.column_{word}") for word in ("deployment", "status", "replicas", "detail")
    ]
    rows = [(d.name, d.status, f"{d.running}/{d.wanted}", d.message) for d in found.deployments]
    out.print(table(f"{found.application}: {found.status}", columns, rows))
    if found.message:
        out.print(found.message, markup=False)
    return None
