"""Report the end of an engine: its log's path, its last lines, the cause."""

from __future__ import annotations

import logging
from pathlib import Path

from gaudi_launch.core.base.child_log import end_of
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.diagnosis.diagnose import Diagnosis, diagnose
from gaudi_launch.core.services.diagnosis.endings import status_words
from gaudi_launch.core.services.log.kernel_log import full_disks
from gaudi_launch.core.services.log.phase_names import phase_text
from gaudi_launch.core.services.process.supervise import EngineOutcome

_log = logging.getLogger(__name__)

_LAST_LINES = 30
_MOST_LOG_BYTES = 4 << 20


def failure(outcome: EngineOutcome, log: Path, model: str = "MODEL") -> LaunchError:
    """Return the error of an engine that died, got stuck or never started.

    It has the log's path and last lines, and the cause. ``model`` is its folder or name, for the
    commands that may help.
    """
    if outcome.kind == "not_started":
        return LaunchError("serve.not_started", ExitCode.ENGINE, why=outcome.detail)
    content = judged_log(log)
    found = diagnose(content, exit_status=outcome.status, outcome=outcome.kind)
    # the last lines on a terminal are read first
    detail = "\n".join(
        [text("serve.last_lines"), *content.splitlines()[-_LAST_LINES:], "", *causes(found, model)]
    )
    phase = phase_text(found.phase)
    if found.port_in_use:
        return LaunchError(
            "serve.port_lost", ExitCode.ENGINE, phase=phase, log=str(log), detail=detail
        )
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


def causes(found: Diagnosis, model: str = "MODEL") -> list[str]:
    """Return the likeliest causes as lines: evidence, remedy and commands of each."""
    lines = []
    for cause in found.causes[:3]:
        lines.append(f"{text('serve.word_cause')}: {cause.title.render()}")
        lines += [f"  > {words}" for _, words in cause.evidence]
        lines += [f"  {remedy}" for remedy in cause.remedies]
        lines += [f"  $ {command}" for command in cause.for_model(model).commands]
    return lines or [text("serve.no_cause")]


def judged_log(path: Path) -> str:
    """Return the end of a log, and whether its disk is full.

    A full disk prevents the log from recording it.
    """
    notes = "".join(f"kernel: {line}\n" for line in full_disks(path))
    content = read_log(path)
    if not notes or not content or content.endswith("\n"):
        return content + notes
    return f"{content}\n{notes}"


def read_log(path: Path) -> str:
    """Return the end of a log, 4 MiB at most."""
    try:
        return end_of(path, _MOST_LOG_BYTES)
    except OSError as error:
        _log.debug("the log is not read: %s", error)
        return ""


def last_lines(path: Path) -> list[str]:
    return read_log(path).splitlines()[-_LAST_LINES:]
