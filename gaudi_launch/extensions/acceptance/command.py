"""``gaudi-launch doctor --deep`` and ``--compare``: the acceptance test."""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_launch.cli.console import emit_json
from gaudi_launch.commands.doctor.case import DoctorRequest
from gaudi_launch.commands.profiles.evidence import read
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.acceptance import case, evidence, view


def deep_test(
    request: DoctorRequest,
    *,
    level: int,
    force: bool,
    strict: bool,
    show_list: bool,
    complete: bool,
    against: Sequence[str],
    as_json: bool,
) -> int:
    """Run the test, print its page and return the exit code. Raises LaunchError."""
    if show_list:
        steps = case.chosen_steps(case.AcceptanceRequest(request, level))
        view.show_steps(steps, as_json, complete=complete)
        return 0
    other = [read(path) for path in against]
    run, machine = case.run(case.AcceptanceRequest(request, level, force))
    path = evidence.write(run, machine)
    changes = evidence.compare(other[0], read(str(path))) if other else []
    if as_json:
        document = view.report_json(run, path, strict)
        emit_json({**document, "changes": view.changes_json(changes)})
    else:
        view.show(run, path, strict, complete=complete)
        if other:
            view.show_changes(changes, complete=complete)
    return int(case.exit_code(run.results, strict))


def compare(against: Sequence[str], as_json: bool, *, complete: bool) -> None:
    """Print the differences of two files, or of one and the last run here."""
    paths = list(against)
    if len(paths) == 1:
        last = evidence.last()
        if last is None:
            raise LaunchError("accept.no_last", ExitCode.USAGE)
        paths.append(str(last))
    rows = evidence.compare(read(paths[0]), read(paths[1]))
    if as_json:
        emit_json({"schema": 1, "changes": view.changes_json(rows)})
    else:
        view.show_changes(rows, complete=complete)
