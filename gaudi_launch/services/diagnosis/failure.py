"""The end of an engine in words: the cause, the last lines of its log, where the whole log is."""

from __future__ import annotations

import os
from pathlib import Path

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.services.diagnose import Diagnosis, diagnose
from gaudi_launch.services.endings import status_words
from gaudi_launch.services.supervise import Outcome

_LAST_LINES = 30
_MOST_LOG_BYTES = 4 << 20


def failure(outcome: Outcome, log: Path, model: str = "MODEL") -> LaunchError:
    """The error of an engine that died, got stuck or never started: the cause, its last lines, the log's path.

    ``model`` is its folder or name, for the commands that may help.
    """
    if outcome.kind == "not_started":
        return LaunchError("serve.not_started", ExitCode.ENGINE, why=outcome.detail)
    lines = last_lines(log)
    found = diagnose(read_log(log), exit_status=outcome.status, outcome=outcome.kind)
    detail = "\n".join([*_causes(found, model), "", *lines])
    phase = text(f"serve.phase_{found.phase}")
    if outcome.kind == "stuck":
        return LaunchError(
            "serve.stuck",
            ExitCode.ENGINE,
            phase=phase,
            seconds=outcome.detail,
            log=str(log),
            detail=detail,
        )
    return LaunchError(
        "serve.died",
        ExitCode.ENGINE,
        phase=phase,
        status=status_words(outcome.status),
        log=str(log),
        detail=detail,
    )


def _causes(found: Diagnosis, model: str) -> list[str]:
    lines = []
    for cause in found.causes[:3]:
        lines.append(f"{text('serve.word_cause')}: {cause.title.render()}")
        lines.append(f"  {cause.remedy.render()}")
        lines += [f"  $ {command}" for command in cause.for_model(model).commands]
    return lines or [text("serve.no_cause")]


def read_log(path: Path) -> str:
    """The end of a log, 4 MiB at most."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def last_lines(path: Path) -> list[str]:
    return read_log(path).splitlines()[-_LAST_LINES:]
