"""A service without a terminal: a small process owns its engine, log and state.

It gets the job as a file, secrets by its environment and the locks of the cards and of the name as
open files, so that they are locked at every instant. `spawn` starts it; `main` is its code.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from gaudi_launch.core.base import debug_log
from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.services.containers import check_program, program_of
from gaudi_launch.core.services.diagnosis.endings import ended
from gaudi_launch.core.services.log.follow import LaunchProgress
from gaudi_launch.core.services.log.phase_names import phase_text
from gaudi_launch.core.services.probe import Readiness
from gaudi_launch.core.services.process.signals import HANDLED
from gaudi_launch.core.services.service import LOG as ENGINE_LOG
from gaudi_launch.core.services.service import run
from gaudi_launch.core.services.state import registry, reservation, store
from gaudi_launch.core.services.state.job import ServiceJob, read_job
from gaudi_launch.core.services.state.recorder import first_state

_log = logging.getLogger(__name__)

LOG = "launcher.log"


def spawn(
    job: ServiceJob,
    plan: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    held: Sequence[int],
) -> int:
    """Start the launcher of a job in a new session; return its pid.

    ``held`` are the open lock files that it takes over, the name's first. ``environment`` may
    contain secrets: it is passed in memory only. Raises LaunchError when the state folder cannot be
    written or nothing starts.
    """
    folder = store.service_dir(job.name)
    documents: dict[str, object] = {"job.json": job}
    if plan is not None:
        documents["plan.json"] = plan
    # the last step: from here on others see it starting, before the launcher itself can report it
    documents["state.json"] = first_state(job, folder / ENGINE_LOG)
    written = all(store.write(folder, name, document) for name, document in documents.items())
    words = [
        sys.executable,
        "-m",
        "gaudi_launch.core.services.process.detach",
        job.name,
        ",".join(str(handle) for handle in held),
    ]
    try:
        if not written:
            # content of an earlier run must not be read as this one's
            raise OSError(28, os.strerror(28))
        handle = os.open(
            folder / LOG,
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )
        seen = ChildLog(_log, words)
        # the child takes them when it can record its end
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env=dict(environment),
                pass_fds=tuple(held),
                start_new_session=True,
                # a launcher runs long: it keeps no folder busy, and imports from none that it was
                # started in
                cwd="/",
            )
        except OSError as error:
            seen.failed(error)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(handle)
        seen.started(child.pid)
        seen.continues()
    except OSError as error:
        why = error.strerror or str(error)
        if store.read(folder, "state.json") is None:
            # a launch that a full disk prevented leaves no files
            shutil.rmtree(folder, ignore_errors=True)
        raise LaunchError(
            "services.not_spawned", ExitCode.FAILED, path=str(folder), why=why
        ) from None
    return child.pid


def start_detached(job: ServiceJob, environment: Mapping[str, str]) -> None:
    """Reserve the name and the cards of a job, and pass it to a detached launcher.

    Raises LaunchError when the name, a card or the port is taken, or docker cannot start the job's
    container.
    """
    if job.container:
        check_program(program_of(job.command.argv), needs_cards=bool(job.modules))
    with (
        registry.hold(job.name) as name,
        reservation.reserve(job.modules, machine_root()) as cards,
        reservation.hold_port(job.url, job.name) as port,
    ):
        spawn(job, None, environment, (name, *cards, *port))


class _Lines:
    """A watcher that writes events into the launcher's log."""

    def __init__(self) -> None:
        self._phase = ""

    def started(self, pid: int) -> None:
        _say(text("services.engine_started", pid=pid))

    def output(self, text: str) -> None:
        pass

    def progress(self, progress: LaunchProgress) -> None:
        if progress.phase != self._phase:
            self._phase = progress.phase
            _say(phase_text(progress.phase))

    def ready(self, readiness: Readiness) -> None:
        _say(text("services.answers", model=readiness.model or "-"))

    def ending(self, signal_number: int | None) -> None:
        _say(text("serve.phase_stopping"))


def _say(line: str) -> None:
    try:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)
    except OSError:
        # a full disk loses the line
        return


def main() -> None:
    """Run the launcher's process: ``NAME HANDLES``. Its exit status is DESIGN's."""
    with debug_log.kept(debug=False):
        _launch()


def _launch() -> None:
    name, handles = sys.argv[1], [int(word) for word in sys.argv[2].split(",")]
    folder = store.service_dir(name)
    for number in HANDLED:
        signal.signal(number, _interrupt)
    for handle in handles:
        # an engine must not keep the launcher's locks
        os.set_inheritable(handle, False)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        job = read_job(folder)
        for handle in handles[1:]:
            reservation.sign(handle, name)
        outcome = run(job, _Lines(), os.environ, _say)
    except KeyboardInterrupt:
        _end(folder, "stopped", "")
        sys.exit(int(ExitCode.INTERRUPTED))
    except LaunchError as error:
        _say(str(error))
        _end(folder, "failed", str(error))
        sys.exit(int(error.exit_code))
    except Exception as error:
        import traceback

        traceback.print_exc()
        _log.debug("the launcher of %s failed", name, exc_info=True)
        _end(folder, "failed", f"{type(error).__name__}: {error}")
        sys.exit(int(ExitCode.FAILED))
    _say(ended(outcome.kind, outcome.status))
    sys.exit(int(ExitCode.DONE if outcome.kind == "stopped" else ExitCode.ENGINE))


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in HANDLED:
        # the end is recorded once
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end(folder: Path, phase: str, error: str) -> None:
    """Record an end before the engine's, or without one."""
    known = store.read(folder, "state.json") or {"name": folder.name, "began": time.time()}
    news = {"phase": phase, "outcome": phase, "error": error, "error_id": "", "ended": time.time()}
    store.write(folder, "state.json", {**known, **news}, last=True)


if __name__ == "__main__":
    main()
