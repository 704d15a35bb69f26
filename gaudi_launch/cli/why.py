"""``gaudi-launch why``: explain a failed start from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gaudi_launch.services.diagnose import Diagnosis

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def why(
    log: str = typer.Argument(
        ..., metavar="LOGFILE|NAME", help="An engine's log, a service's name, or - for stdin."
    ),
    exit_status: int | None = typer.Option(None, "--exit-status", help="How the engine ended; -9 for SIGKILL."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Say what failed, in which phase, on which evidence, and what to do."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.diagnose import diagnose

    text = read(log)
    if not text.strip():
        raise LaunchError("diagnose.empty", ExitCode.FAILED, path=log)
    found = diagnose(text, exit_status=exit_status)
    if as_json:
        return emit_json(
            {
                "schema": 1,
                "failed": found.failed,
                "phase": found.phase,
                "permanent": found.permanent,
                "causes": [cause.to_json() for cause in found.causes],
            }
        )
    return _show(found, text)


_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 4 << 20


def read(log: str) -> str:
    """A log's text: all of it, or of a huge one the first MiB and the last four. Raises LaunchError."""
    import sys
    from pathlib import Path

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services import state

    if log == "-":
        content = sys.stdin.buffer.read(_HEAD_BYTES + _TAIL_BYTES)
        return content.decode("utf-8", errors="replace")
    path = Path(log)
    if not path.exists() and "/" not in log and (state.services_dir() / log / "engine.log").is_file():
        path = state.services_dir() / log / "engine.log"
    try:
        with path.open("rb") as file:
            content = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
            file.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            content += file.read(_TAIL_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LaunchError("diagnose.unreadable", ExitCode.USAGE, path=log, why=reason) from None
    return content.decode("utf-8", errors="replace")


def _show(found: Diagnosis, text_: str) -> None:
    from gaudi_launch.cli.output import console
    from gaudi_launch.messages import text

    out = console()

    def say(line: str) -> None:
        out.print(line, markup=False, soft_wrap=True)

    phase = text(f"serve.phase_{found.phase}")
    if not found.failed:
        return say(text("diagnose.healthy", phase=phase))
    say(text("diagnose.failed", phase=phase))
    for number, cause in enumerate(found.causes, start=1):
        say(f"\n{text('diagnose.word_cause')} {number}: {cause.title.render()}")
        for line, words in cause.evidence:
            say(f"  {text('diagnose.word_line')} {line}: {words}")
        say(f"  {text('diagnose.word_remedy')}: {cause.remedy.render()}")
        for command in cause.commands:
            say(f"    $ {command}")
        say(f"  {text('diagnose.word_source')}: {cause.source}")
    if found.permanent:
        say("\n" + text("diagnose.permanent"))
    if not found.causes:
        say(text("diagnose.none"))
        for last in text_.splitlines()[-30:]:
            say(f"  {last}")
    return None
