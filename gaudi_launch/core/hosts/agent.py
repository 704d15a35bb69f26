"""The agent on a host of a cluster, sent as text to the engine's interpreter.

ssh's standard input carries it. Standard library only (and Ray for one request), Python 3.10 or
newer; nothing is installed on the host. The launcher puts the request after this text. Secrets come
in with it, so they are in no command line and no file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.plain_json import plain_json

MARK = "gaudi-launch-cluster:"
LEASE = "lease"
# the agent has fewer files open
MOST_FILES = 256

Document = dict[str, Any]
# parent, session, start time, state
Stat = tuple[int, int, int, str]


def home(name: str) -> Path:
    """Return the folder of a cluster's member (``NAME/HOST``) on this host."""
    base = os.environ.get("XDG_STATE_HOME")
    return (
        (Path(base) if base else Path.home() / ".local/state") / "gaudi-launch" / "cluster" / name
    )


def stat(pid: int) -> Stat | None:
    """Return a process as the kernel shows it.

    Return None when it is gone or only waits to be reaped (of several threads the first may end
    before the others, which still have files and cards open).
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        gone = words[0] == "Z" and int(words[17]) <= 1
        if gone:
            return None
        return (int(words[1]), int(words[3]), int(words[19]), words[0])
    except (OSError, ValueError, IndexError):
        return None


def kept(folder: Path, name: str) -> int | None:
    """Return the process that was started under this name, if it still runs.

    Another process with its pid does not count.
    """
    try:
        found = plain_json((folder / f"{name}.json").read_bytes())
        now = stat(int(found["pid"]))
        if now is not None and now[2] == found["started"]:
            return int(found["pid"])
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def family(pid: int) -> dict[int, int]:
    """Return a process, its descendants and its session, each with its start time."""
    every: dict[int, Stat] = {}
    for folder in Path("/proc").iterdir():
        known = stat(int(folder.name)) if folder.name.isdigit() else None
        if known is not None:
            every[int(folder.name)] = known
    found: set[int] = {other for other, known in every.items() if other == pid or known[1] == pid}
    while True:
        more = {other for other, known in every.items() if known[0] in found} - found
        if not more:
            return {other: every[other][2] for other in found}
        found |= more


def probe(request: Document) -> Document:
    """Return versions, clock, folders and tools of this host."""
    folders = {}
    for path in request["folders"]:
        files = total = 0
        for top, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += Path(top, name).stat().st_size
                    files += 1
        folders[path] = [files, total]
    asked = subprocess.run(
        [sys.executable, "-c", request["question"]],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    return {
        "time": time.time(),
        "folders": folders,
        "tools": [name for name in ("rsync", "scp") if shutil.which(name)],
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "engine": asked.stdout.decode("utf-8", "replace"),
    }


def write(path: Path, text: str) -> None:
    """Write a file in a private folder.

    A name that others can guess may already exist there, as a trap.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.parent.lstat()
    if path.parent.is_symlink() or owner.st_uid != os.geteuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{path.parent} belongs to another user")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def deserted(request: Document, wait: int | None = 0) -> bool:
    """Return True if the launching process or its SSH connection has died.

    Nothing reads the results of this process then. ``wait``: milliseconds until it may die, None
    without end.
    """
    asked = select.poll()
    asked.register(request["caller"], 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(wait))


def leave_with_launcher(request: Document) -> None:
    """End this process when the launcher ends.

    Ray's code may block it for minutes, and was seen to ignore Ctrl-C.
    """
    while not deserted(request, None):
        pass
    os._exit(1)


def start(request: Document) -> Document:
    """Start a command in a new session, with its output in a log; record its process."""
    folder, name = home(request["folder"]), request["name"]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    alive = kept(folder, name)
    if alive is not None:
        return {"running": alive}
    for path, text in request["files"].items():
        write(Path(path), text)
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        child = subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **request["env"], **request.get("secrets", {})},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return {"failed": error.strerror or str(error)}
    now = stat(child.pid)
    document = {"pid": child.pid, "started": now[2] if now is not None else 0}
    record = folder / f"{name}.json"
    write(record, json.dumps(document))
    if request.get("lease"):
        (folder / LEASE).touch()
        document["guard"] = guard(folder, name, float(request["lease"]))
        # the guard is reading it: it would leave at a record that is half written
        write(record, json.dumps(document))
    # what cannot even begin (no such module, a wrong option) is reported immediately
    deadline = time.monotonic() + request["settle"]
    while time.monotonic() < deadline and child.poll() is None and not deserted(request):
        time.sleep(0.05)
    if deserted(request):
        end(child.pid, 5.0)
    return {"pid": child.pid, "exit": child.poll()}


def guard(folder: Path, name: str, seconds: float) -> int:
    """Fork a process that ends a started one when the launcher is gone.

    Return its pid. Every `status` of the launcher renews its lease. Removing the lease
    (`release`) ends only the guard.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        # a connection would stay open with any of these
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.closerange(3, MOST_FILES)
        os.setsid()
        renewed, seen = time.monotonic(), None
        while kept(folder, name) is not None:
            latest = (folder / LEASE).stat().st_mtime_ns
            if latest != seen:
                renewed, seen = time.monotonic(), latest
            if time.monotonic() - renewed > seconds:
                # joining the folder of clusters with an absolute path returns that path
                stop({"folder": folder, "names": [name], "timeout": 30.0})
                break
            time.sleep(0.5)
    finally:
        os._exit(0)


def end_guard(folder: Path, name: str) -> None:
    """End the guard of a started process, unless it is the caller."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        pid = int(plain_json((folder / f"{name}.json").read_bytes())["guard"])
        found = stat(pid)
        # it leads a session of this interpreter; a pid that was reused is another process
        if pid == os.getpid() or found is None or found[1] != pid:
            return
        if Path(f"/proc/{pid}/exe").samefile(f"/proc/{os.getpid()}/exe"):
            os.kill(pid, signal.SIGKILL)


def release(request: Document) -> Document:
    """End the lease of what was started: it continues without the launcher."""
    with contextlib.suppress(OSError):
        (home(request["folder"]) / LEASE).unlink()
    return {}


def status(request: Document) -> Document:
    """Return which of the named processes run, and more of a log. Renew the lease."""
    folder, offset = home(request["folder"]), request.get("offset", 0)
    with contextlib.suppress(OSError):
        os.utime(folder / LEASE)
    data = b""
    if request.get("log"):
        with contextlib.suppress(OSError), (folder / f"{request['log']}.log").open("rb") as file:
            file.seek(offset)
            data = file.read(1 << 20)
    return {
        "alive": {name: kept(folder, name) for name in request["names"]},
        "log": data.decode("utf-8", "replace"),
        "offset": offset + len(data),
    }


def stop(request: Document) -> Document:
    """End what was started under these names, in their order: SIGTERM, wait, SIGKILL.

    Nothing else is ended.
    """
    folder = home(request["folder"])
    ended = {}
    for name in request["names"]:
        end_guard(folder, name)
        alive = kept(folder, name)
        ended[name] = end(alive, request["timeout"]) if alive is not None else "none"
        if ended[name] != "stuck":
            with contextlib.suppress(OSError):
                (folder / f"{name}.json").unlink()
    if not list(folder.glob("*.json")):
        with contextlib.suppress(OSError):
            (folder / LEASE).unlink()
    return {"ended": ended}


def end(pid: int, timeout: float) -> str:
    """End a process and its family: "ended", "killed", or "stuck" in the kernel."""
    mine = family(pid)

    def living() -> list[int]:
        mine.update(family(pid))
        known = [(one, started, stat(one)) for one, started in mine.items()]
        return [one for one, started, now in known if now is not None and now[2] == started]

    def tell(pids: list[int], number: int) -> None:
        for one in pids:
            with contextlib.suppress(OSError):
                os.kill(one, number)

    def wait(done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            time.sleep(0.1)

    # the first process ends its workers in the right order; then the remaining ones are ended
    tell([pid], signal.SIGTERM)
    wait(lambda: pid not in living(), timeout)
    tell(living(), signal.SIGTERM)
    wait(lambda: not living(), min(timeout, 5.0))
    if not living():
        return "ended"
    tell(living(), signal.SIGKILL)
    wait(lambda: not living(), 5.0)
    return "stuck" if living() else "killed"


def run(request: Document) -> Document:
    """Run a command to its end, or until the launcher ends.

    Return its status and its last lines.
    """
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                request["argv"],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return {"code": 127, "output": error.strerror or str(error)}
        deadline = time.monotonic() + request["seconds"]
        while child.poll() is None and time.monotonic() < deadline and not deserted(request):
            time.sleep(0.1)
        late = child.poll() is None
        if late:
            end(child.pid, 5.0)
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
        said = output.read().decode("utf-8", "replace")
    if late:
        return {"code": 124, "output": f"{request['seconds']:g} s"}
    return {"code": child.returncode, "output": said}


def listening(request: Document) -> Document:
    """Return True if a process accepts connections at this address."""
    deadline = time.monotonic() + request["seconds"]
    while True:
        try:
            socket.create_connection((request["host"], request["port"]), timeout=2).close()
            return {"open": True}
        except OSError as error:
            if time.monotonic() >= deadline:
                return {"open": False, "why": str(error)}
            time.sleep(0.3)


def nodes(request: Document) -> Document:
    """Return Ray's view of the cluster, once it has this number of HPUs."""
    import ray

    os.environ.pop("RAY_ADDRESS", None)
    ray.init(
        address=request["address"],
        _node_ip_address=request["ip"],
        log_to_driver=False,
        logging_level="ERROR",
    )
    deadline = time.monotonic() + request["seconds"]
    while True:
        found = [
            {
                "address": node["NodeManagerAddress"],
                "alive": bool(node["Alive"]),
                "hpu": int(node["Resources"].get("HPU", 0)) if node["Alive"] else 0,
            }
            for node in ray.nodes()
        ]
        if sum(node["hpu"] for node in found) >= request["wanted"] or time.monotonic() >= deadline:
            ray.shutdown()
            return {"nodes": found}
        time.sleep(0.5)


def ready(request: Document) -> Document:
    """Return whether the service answers.

    The launcher's prober tests it; its source came with the request.
    """
    import types

    module = types.ModuleType("gaudi_launch_ready")
    sys.modules[module.__name__] = module
    exec(compile(request["source"], "ready.py", "exec"), module.__dict__)
    found = module.probe(
        request["url"], timeout=request["seconds"], api_key=request.get("key") or None
    )
    return {
        "ready": found.ready,
        "stage": found.stage,
        "detail": found.detail,
        "model": found.model,
    }


DOES: dict[str, Callable[[Document], Document]] = {
    "probe": probe,
    "start": start,
    "status": status,
    "stop": stop,
    "release": release,
    "run": run,
    "listening": listening,
    "nodes": nodes,
    "ready": ready,
}


# these begin and end nothing, so they can be interrupted at any moment
LOOKS = ("probe", "status", "listening", "nodes", "ready")


def main(text: str) -> None:
    """Execute one request and answer with one marked line."""
    request = plain_json(text)
    # the output of a library must not come between
    answer_to = request["caller"] = os.dup(1)
    os.dup2(2, 1)
    if request["do"] in LOOKS:
        threading.Thread(target=leave_with_launcher, args=(request,), daemon=True).start()
    try:
        answer = DOES[request["do"]](request)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(answer_to, f"\n{MARK}{json.dumps(answer)}\n".encode())
