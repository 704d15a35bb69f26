"""``gaudi-launch check``: test whether a server answers, streams, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.bench.check_rows import CheckRow
    from gaudi_launch.services.endpoint import Target

app = CommandApp()


@app.command()
def check(
    server: str = typer.Argument(..., metavar="URL|NAME", help="A server's address, or a service's name."),
    model: str | None = typer.Option(None, "--model", help="The model's name in requests (default: the first)."),
    long: str | None = typer.Option(
        None, "--long", metavar="TOKENS", help="Length of the long prompt (default: the plan's bucket edge)."
    ),
    timeout: str = typer.Option(
        "120", "--patience", metavar="TIME", help="Timeout without data of the server: 90, 5m."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Test a server: models, chat, streaming, a long prompt, tokens per second.

    The key, if one is needed, comes from VLLM_API_KEY. Exit code 1: unreachable or refused; 4: the engine failed.
    """
    import asyncio

    from gaudi_launch.bench import check as checks
    from gaudi_launch.bench.client import Client
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.planning.parse import number, seconds
    from gaudi_launch.services.endpoint import api_key, target

    found = target(server)
    wanted = number("--long", long, most=10**7) if long is not None else None
    client = Client(found.url, api_key=api_key(), timeout=seconds("--patience", timeout))
    said = (lambda row: None) if as_json else _tell
    rows = asyncio.run(checks.check(client, found, said, long=wanted, model=model))
    code = checks.exit_code(rows)
    if as_json:
        emit_json(
            {
                "schema": 1,
                "url": found.url,
                "service": found.name,
                "ok": not code,
                "checks": [row.to_json() for row in rows],
            }
        )
    else:
        _show(found, rows)
    raise typer.Exit(int(code))


def _tell(row: CheckRow) -> None:
    """Print each result as it arrives."""
    import sys

    from gaudi_launch.messages import text

    if sys.stderr.isatty():
        name, verdict = text(f"measure.check_name_{row.name}"), text(f"measure.check_verdict_{row.verdict}")
        print(f"{name}: {verdict}", file=sys.stderr, flush=True)


def _show(found: Target, rows: list[CheckRow]) -> None:
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    out = console()
    columns = [text(f"measure.check_column_{name}") for name in ("question", "result", "seconds", "words")]
    lines = [
        (
            text(f"measure.check_name_{row.name}"),
            text(f"measure.check_verdict_{row.verdict}"),
            f"{row.seconds:.2f}" if row.verdict != "skip" else "-",
            row.sentence.render(),
        )
        for row in rows
    ]
    title = text("measure.check_title", label=found.label, url=found.url)
    out.print(table(title, columns, lines, right=(2,)))
    failed = sum(row.verdict == "fail" for row in rows)
    end = text("measure.check_bad", count=failed, total=len(rows)) if failed else text("measure.check_good")
    out.print(end, markup=False, soft_wrap=True)
