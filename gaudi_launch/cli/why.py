"""``gaudi-launch why``: explain a failed start from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gaudi_launch.services.diagnose import Diagnosis
    from gaudi_launch.services.explain import Explanation

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

    told = _explanation(log, exit_status)
    if not as_json:
        return _show(told)
    found = told.found
    causes = [cause.to_json() for cause in found.causes]
    for cause in causes:
        for evidence in cause["evidence"]:
            evidence["line"] = told.content.line_in_file(evidence["line"])
    return emit_json(
        {
            "schema": 1,
            "log": told.log,
            "failed": found.failed,
            "phase": found.phase,
            "permanent": found.permanent,
            "note": told.note.render() if told.note else None,
            "causes": causes,
        }
    )


def _explanation(log: str | None, exit_status: int | None) -> Explanation:
    """Of a log's path, of a service, or of the service that failed last."""
    from pathlib import Path

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services import explain, registry

    if log == "-":
        return explain.explain_log(None, exit_status)
    if log is None:
        failed = [each for each in registry.services() if each.phase in ("failed", "lost")]
        if not failed:
            raise LaunchError("diagnose.nothing_failed", ExitCode.USAGE)
        last = max(failed, key=lambda each: float(each.state.get("ended") or each.state.get("began") or 0))
        return explain.explain_service(last, exit_status)
    path = Path(log)
    # a folder is no log, so it may be called like a service
    service = registry.read(log) if path.is_dir() or not path.exists() else None
    return (
        explain.explain_log(path, exit_status) if service is None else explain.explain_service(service, exit_status)
    )


def _show(told: Explanation) -> None:
    from gaudi_launch.cli.output import console
    from gaudi_launch.messages import text

    out = console()
    found, content = told.found, told.content

    def say(line: str) -> None:
        out.print(line, markup=False, soft_wrap=True)

    if told.note is not None:
        say(told.note.render())
    phase = text(f"serve.phase_{found.phase}")
    if found.failed and content.text:
        say(text("diagnose.failed", phase=phase))
    elif found.causes:
        say(text("diagnose.requests"))
    elif not found.failed and told.note is None:
        # a note on one that runs or was stopped says it all
        say(_no_failure(found, phase))
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
    if found.failed and not found.causes and content.text and told.note is None:
        say(text("diagnose.none"))
        for last in content.text.splitlines()[-30:]:
            say(f"  {last}")


def _no_failure(found: Diagnosis, phase: str) -> str:
    """A log that tells of no failure: of an engine that came up, or one that ends in the middle of a start."""
    from gaudi_launch.messages import text

    if found.came_up or found.phase in ("ready", "stopping"):
        return text("diagnose.healthy", phase=phase)
    done, total = found.at
    return text("diagnose.unfinished", phase=phase, progress=f" ({done}/{total})" if total else "")
