"""``gaudi-launch setup``: make an engine environment, step by step; what is there already is left alone."""

from __future__ import annotations

import typer

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def setup(
    engine: str = typer.Argument(
        ..., metavar="ENGINE", help="cpu: the embedded engine and its demo model; ray: Ray Serve beside it."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands and do nothing."),
    no_demo: bool = typer.Option(False, "--no-demo", help="Only the engine, without the demo model."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Prepare an engine environment. Run again, it goes on where it stopped."""
    import shlex
    import sys
    import time

    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.engines import embedded, ray_environment
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    names = {"cpu": "cpu", "vllm-cpu": "cpu", "ray": "ray", "ray-serve": "ray"}
    if engine not in names:
        raise LaunchError("serve.setup_unknown", ExitCode.USAGE, found=engine, known="cpu, ray")
    engine = names[engine]
    if dry_run:
        steps = embedded.engine_steps() + ([] if no_demo else embedded.demo_steps())
        steps += ray_environment.steps() if engine == "ray" else []
        if as_json:
            return emit_json({"schema": 1, "steps": [{"id": s.id, "argv": list(s.argv)} for s in steps]})
        for step in steps:
            typer.echo(f"# {text(step.id)}")
            if step.argv:
                typer.echo(shlex.join(step.argv))
        return None
    begin = time.monotonic()
    place = ray_environment if engine == "ray" else embedded
    place.setup(lambda line: print(line, file=sys.stderr, flush=True), demo=not no_demo)
    seconds = time.monotonic() - begin
    python = str(place.python_path())
    if as_json:
        demo = None if no_demo else str(embedded.demo_dir())
        return emit_json(
            {"schema": 1, "engine": engine, "python": python, "demo": demo, "seconds": round(seconds, 1)}
        )
    typer.echo(text("serve.setup_done", python=python, seconds=round(seconds)))
    return None
