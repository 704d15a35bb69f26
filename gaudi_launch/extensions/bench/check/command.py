"""``gaudi-launch check``: test whether a server answers, streams, and how fast."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.shared_options import SERVER

app = CommandApp()

_SAVE = typer.Option(None, "--save", metavar="FILE", help="With --quality: keep the answers.")
_COMPARE = typer.Option(
    None, "--compare", metavar="FILE", help="With --quality: compare with answers that were kept."
)


@app.command()
def check(
    server: str | None = SERVER,
    model: str | None = typer.Option(
        None, "--model", metavar="NAME", help="The model's name in requests (default: the first)."
    ),
    long: str | None = typer.Option(
        None,
        "--long",
        metavar="TOKENS",
        help="Length of the long prompt (default: the plan's bucket edge).",
    ),
    timeout: str = typer.Option(
        "120", "--timeout", metavar="TIME", help="Timeout without data of the server: 90, 5m."
    ),
    quality: bool = typer.Option(
        False, "--quality", help="Ask 100 questions, alone and in full batches, instead."
    ),
    save: Path | None = _SAVE,
    compare: Path | None = _COMPARE,
    as_json: bool = JSON,
) -> None:
    """Test a server: models, chat, streaming, a long prompt, tokens per second.

    The key, if one is needed, comes from VLLM_API_KEY. Exit code 1: unreachable or refused; 4: the
    engine failed.
    """
    import asyncio

    from gaudi_launch.core.planning.parse import number, seconds
    from gaudi_launch.core.services.endpoint import api_key, target
    from gaudi_launch.extensions.bench.check import checks, view
    from gaudi_launch.extensions.bench.check import quality as answers
    from gaudi_launch.extensions.bench.client import Client

    found = target(server)
    wanted = number("--long", long, most=10**7) if long is not None else None
    client = Client(found.url, api_key=api_key(), timeout=seconds("--timeout", timeout))
    if quality or save or compare:
        base = answers.read(compare) if compare else None
        answered = answers.run(client, found, model)
        if save:
            answers.write(save, answered)
        change = answers.compare(base, answered) if base else None
        view.show_quality(found, answered, change, as_json)
        raise typer.Exit(int(answers.exit_code(answered, change)))
    said = (lambda row: None) if as_json else view.tell
    rows = asyncio.run(checks.check(client, found, said, long=wanted, model=model))
    code = checks.exit_code(rows)
    view.show(found, rows, as_json)
    raise typer.Exit(int(code))
