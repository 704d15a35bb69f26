"""One step of a longer task as a process: log, progress, and a timeout."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.child_log import end_of
from gaudi_launch.core.base.interrupt import deferred, pause, requested
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.process.process import EngineProcess, StopTimeouts

_TURN_SECONDS = 0.2
_LAST_BYTES = 8192
# tqdm's "Processed prompts:  12%|#  | 3/512 [..", "shards: 50% Completed | 1/2", "Batch finished:
# 32/1000 samples"
_COUNT = re.compile(
    r"([A-Za-z][A-Za-z ]{2,50}):\s+(?:\d{1,3}%[^\r\n]{0,80}?)?(\d{1,9})/(\d{1,9})\b"
)


@dataclass(frozen=True)
class StepProgress:
    """The numbers of the last line with numbers."""

    word: str
    done: int
    total: int


def run_step(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    tell: Callable[[StepProgress], None] = lambda progress: None,
    quiet_seconds: float = 3600.0,
) -> int | None:
    """Run a step to its end; return its exit status (negative: a signal).

    Return None when it wrote nothing for ``quiet_seconds`` and was terminated. None of its
    processes is left when this returns or raises. Raises OSError when it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = log.stat().st_size if log.is_file() else 0
    command = Command(argv=argv, env=dict(env), working_dir=str(folder))
    process = EngineProcess(command, log, dict(os.environ), bind=False, guarded=True)
    with deferred():
        process.start()
        try:
            size, moved = -1, time.monotonic()
            while (status := process.poll()) is None:
                now = log.stat().st_size
                if now != size:
                    size, moved = now, time.monotonic()
                    if (progress := read_progress(end_of(log, _LAST_BYTES, begin))) is not None:
                        tell(progress)
                if time.monotonic() - moved > quiet_seconds:
                    return None
                pause(_TURN_SECONDS)
            return status
        finally:
            # also on Ctrl-C (a second one forces it), and for workers that a step left running
            process.end(StopTimeouts(), requested)


def read_progress(text: str) -> StepProgress | None:
    """Return the last count in a piece of output."""
    found = list(_COUNT.finditer(text))
    if not found:
        return None
    word, done, total = found[-1].groups()
    if not int(total):
        return None
    return StepProgress(word.strip(), int(done), int(total))
