"""``gaudi-launch why``: explain a failed start from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from gaudi_launch.services.diagnose import Diagnosis
    from gaudi_launch.services.excerpt import Excerpt

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def why(
    log: str | None = typer.Argument(
        None,
        metavar="[NAME|LOGFILE]",
        help="A service, an engine's log, or - for stdin (default: what failed last).",
    ),
    exit_status: int | None = typer.Option(None, "--exit-status", help="How the engine ended; -9 for SIGKILL."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Say what failed, in which phase, on which evidence, and what to do."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.diagnose import diagnose
    from gaudi_launch.services.excerpt import read_excerpt

    name, path, status = _source(log)
    content = read_excerpt(path)
    if not content.text.strip():
        raise LaunchError("diagnose.empty", ExitCode.FAILED, path=name)
    found = diagnose(content.text, exit_status=status if exit_status is None else exit_status)
    if as_json:
        causes = [cause.to_json() for cause in found.causes]
        for cause in causes:
            for evidence in cause["evidence"]:
                evidence["line"] = content.line_in_file(evidence["line"])
        return emit_json(
            {
                "schema": 1,
                "log": name,
                "failed": found.failed,
                "phase": found.phase,
                "permanent": found.permanent,
                "causes": causes,
            }
        )
    return _show(found, content)


def _source(log: str | None) -> tuple[str, Path | None, int | None]:
    """What to call it, the file (None: stdin), and how its engine ended where a service tells."""
    from pathlib import Path

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services import registry, service

    if log == "-":
        return "-", None, None
    if log is None:
        failed = [each for each in registry.services() if each.phase in ("failed", "lost")]
        if not failed:
            raise LaunchError("diagnose.nothing_failed", ExitCode.USAGE)
        chosen = max(failed, key=lambda each: float(each.state.get("ended") or each.state.get("began") or 0))
        log = chosen.name
    path = Path(log)
    known = None if path.exists() or "/" in log else registry.read(log)
    if known is None:
        return log, path, None
    status = known.state.get("status")
    return known.name, known.folder / service.LOG, status if isinstance(status, int) else None


def _show(found: Diagnosis, content: Excerpt) -> None:
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
            say(f"  {text('diagnose.word_line')} {content.line_in_file(line)}: {words}")
        say(f"  {text('diagnose.word_remedy')}: {cause.remedy.render()}")
        for command in cause.commands:
            say(f"    $ {command}")
        say(f"  {text('diagnose.word_source')}: {cause.source}")
    if found.permanent:
        say("\n" + text("diagnose.permanent"))
    if not found.causes:
        say(text("diagnose.none"))
        for last in content.text.splitlines()[-30:]:
            say(f"  {last}")
    return None
