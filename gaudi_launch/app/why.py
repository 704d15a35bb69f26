"""The use case of ``gaudi-launch why``: select a log and explain it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from gaudi_launch.services.diagnosis.explain import Explanation


def why(log: str | None, exit_status: int | None) -> Explanation:
    """Explain a log by its path, ``-`` for stdin, or a service by its name.

    Without either, explain what failed last. Raises LaunchError.
    """
    from gaudi_launch.services.diagnosis import explain
    from gaudi_launch.services.state import registry

    if log == "-":
        return explain.explain_log(None, exit_status)
    if log is None:
        failed = [each for each in registry.services() if each.phase in ("failed", "lost")]
        if not failed:
            raise LaunchError("diagnose.nothing_failed", ExitCode.USAGE)
        last = max(failed, key=lambda each: float(each.state.get("ended") or each.state.get("began") or 0))
        return explain.explain_service(last, exit_status)
    path = Path(log)
    # a folder is not a log, so the name may be that of a service
    service = registry.read(log) if path.is_dir() or not path.exists() else None
    if service is None:
        return explain.explain_log(path, exit_status)
    return explain.explain_service(service, exit_status)
