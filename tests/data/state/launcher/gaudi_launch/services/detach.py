"""Stand in for the launcher of a detached service as commit 4825996 ran it.

`python -m gaudi_launch.services.detach NAME HANDLES` with this folder first on PYTHONPATH has the
command line of that launcher. As there: the handles are the locks of the name and of the cards,
inherited; the launcher adopts what its engine leaves; the engine has GAUDI_LAUNCH_SERVICE in its
environment and writes to engine.log; SIGTERM ends the engine and leaves the phase "stopped".
Compared with the real one by /proc/PID/cmdline, /proc/PID/fd and /proc/PID/environ of both.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36


def identity(pid: int) -> dict[str, Any]:
    """Return pid, start in clock ticks and boot of a process, as state.json keeps them."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    boot = Path(os.environ.get("GAUDI_LAUNCH_ROOT", "/")) / "proc/sys/kernel/random/boot_id"
    return {
        "pid": pid,
        "ticks": int(fields[19]),
        "boot": boot.read_text().strip() if boot.exists() else "",
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """Replace a JSON file."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(document, indent=1), encoding="utf-8")
    part.replace(path)


def main() -> None:
    """Start the engine of job.json and keep it until SIGTERM."""
    name, handles = sys.argv[1], [int(each) for each in sys.argv[2].split(",")]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    for handle in handles:
        os.set_inheritable(handle, False)
    holder = {"pid": os.getpid(), "command": "gaudi-launch", "user": "root"}
    for handle in handles[1:]:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder).encode(), 0)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folder = Path(os.environ["XDG_STATE_HOME"]) / "gaudi-launch" / "services" / name
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    with (folder / "engine.log").open("ab") as log:
        engine = subprocess.Popen(
            job["command"]["argv"],
            env={
                **os.environ,
                **job["environment"],
                **job["command"]["env"],
                "GAUDI_LAUNCH_SERVICE": str(folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state |= {"launcher": identity(os.getpid()), "launcher_pid": os.getpid(), "pid": engine.pid}
    state |= {
        "engine_process": identity(engine.pid),
        "engine_began": time.time(),
        "ready_at": time.time(),
    }
    write(folder / "state.json", state)
    while not asked:
        time.sleep(0.05)
    engine.terminate()
    engine.wait()
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    ended = {"phase": "stopped", "outcome": "stopped", "status": engine.returncode, "detail": ""}
    write(
        folder / "state.json", {**state, **ended, "error": "", "error_id": "", "ended": time.time()}
    )


if __name__ == "__main__":
    main()
