"""``gaudi-launch doctor --deep`` and ``--compare``: the acceptance test."""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_launch.cli.console import emit_json
from gaudi_launch.commands.doctor.case import DoctorRequest
from gaudi_launch.commands.profiles.evidence import read
from gaudi_launch.core.base import codec
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
        view.show_steps(case.chosen_steps(request, level), as_json, complete=complete)
        return 0
    before = [read(path) for path in against][:1]
    run, machine = case.run(request, level, force=force)
    path = evidence.write(run, machine)
    changes = [change for each in before for change in evidence.compare(each, read(str(path)))]
    if as_json:
        document = view.report_json(run, path, strict)
        emit_json({**document, "changes": codec.write(changes)})
    else:
        view.show(run, path, strict, complete=complete)
        if before:
            view.show_changes(changes, complete=complete)
    return int(case.exit_code(run.results, strict))


def compare(against: Sequence[str], as_json: bool, *, complete: bool) -> None:
    """Print the differences of two files, or of one and the last run here."""
    after = against[1] if len(against) > 1 else str(evidence.last())
    rows = evidence.compare(read(against[0]), read(after))
    if as_json:
        emit_json({"schema": 1, "changes": codec.write(rows)})
    else:
        view.show_changes(rows, complete=complete)
