"""The head of a Ray Serve deployment on one machine: start, deploy, report, end.

python gaudi_ray_head.py --host HOST --port PORT --hpus N --config JSON

HOST and PORT are those of the config's http_options, repeated for readers of the command line.
Lines that begin with ``gaudi-launch ray:`` are the head's; those of the first set's engine are
unchanged, others have a prefix.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from gaudi_ray_engine import OWN_THREADS
from gaudi_ray_slots import FOLDER, end_leftovers, log_of, plain_json

_PREFIX = "gaudi-ray-"
_LOGS_PREFIX = "gaudi-launch-ray-logs-"
_KEPT_LOGS = 3
# the longest path that a Unix socket may have (linux: sun_path is 108 bytes with its end)
_LONGEST_SOCKET = 107
# below a session's folder; the longest names of Ray 2.60.0 (python/ray/dashboard: one socket for
# each module)
_SOCKET = "sockets/dash_UsageStatsHead"
# where the temporary folder of the environment is too long for Ray's sockets
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_APPLICATIONS = "/api/serve/applications/"
# loopback, so that nothing of Ray is reached from outside; not .1, which releases such as 2.40
# replace by the host's address and then wait forever (ray 2.40.0: _private/services.py
# resolve_ip_for_localhost)
_NODE = "127.0.0.2"
_TURN_SECONDS = 0.2
_STATUS_EVERY_SECONDS = 1.0
_OBJECT_STORE_BYTES = 200_000_000


def say(line: str) -> None:
    print(f"gaudi-launch ray: {line}", flush=True)


class Tails:
    """Copy the engines' output: the first set's unchanged, the others' with a prefix."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._at = [0] * count
        self._partial = [b""] * count

    def read(self) -> None:
        for number in range(len(self._at)):
            try:
                with log_of(self._folder, number).open("rb") as file:
                    file.seek(self._at[number])
                    content = file.read(1 << 20)
            except OSError:
                continue
            self._at[number] += len(content)
            if not content:
                continue
            # complete lines only, so that two engines never share one
            *lines, self._partial[number] = (self._partial[number] + content).split(b"\n")
            prefix = b"" if number == 0 else f"(Replica{number}) ".encode()
            for line in lines:
                sys.stdout.buffer.write(prefix + line + b"\n")
        sys.stdout.buffer.flush()


class Dashboard:
    """Ray's REST interface, as used by `serve deploy` and `serve status`."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, document: Any = None, method: str = "GET") -> Any:
        """Return the answer.

        Raises RuntimeError with Ray's text for a refusal, OSError without an answer.
        """
        body = None if document is None else json.dumps(document).encode()
        request = Request(self.url + path, data=body, headers=self._headers, method=method)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=30) as response:
                content = response.read()
        except HTTPError as error:
            with error:
                words = error.read(4000).decode("utf-8", errors="replace")
                raise RuntimeError(f"{path}: {error.code} {words}") from None
        except URLError as error:
            raise ConnectionError(str(error.reason)) from None
        return plain_json(content) if content else None

    def deploy(self, config: dict[str, Any], stops: list[int], timeout: float = 120.0) -> None:
        """Send the config, unless a signal comes first. Raises as `ask` does."""
        deadline = time.monotonic() + timeout
        while not stops:
            try:
                self.ask(_APPLICATIONS, config, "PUT")
                return
            except OSError:
                # it comes up some seconds after Ray
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def status(self) -> dict[str, Any]:
        try:
            applications: dict[str, Any] = self.ask(_APPLICATIONS)["applications"]
        except (OSError, RuntimeError, KeyError, TypeError, ValueError):
            return {}
        return applications


def summary(applications: dict[str, Any]) -> list[str]:
    """Return the lines of a status: the state of applications and deployments.

    A deployment has its replicas.
    """
    lines = []
    for name, application in sorted(applications.items()):
        lines.append(f"application {name} {application.get('status')}")
        for label, deployment in sorted((application.get("deployments") or {}).items()):
            replicas = deployment.get("replicas") or []
            running = sum(replica.get("state") == "RUNNING" for replica in replicas)
            target = deployment.get("target_num_replicas", len(replicas))
            lines.append(
                f"deployment {label} {deployment.get('status')}, replicas {running}/{target} "
                "running"
            )
    return lines


def socket_length(temporary: str) -> int:
    """Return the bytes of a session's longest socket path below a temporary folder.

    A session is called ``session_2026-11-22_02-20-00_123456_PID`` (ray 2.60.0:
    python/ray/_private/node.py).
    """
    session = f"session_2026-11-22_02-20-00_123456_{os.getpid()}"
    return len(os.fsencode(f"{temporary}/{_PREFIX}xxxxxxxx/ray/{session}/{_SOCKET}"))


def short_folder() -> str | None:
    """Return a temporary folder with a path short enough for Ray's sockets.

    Return None where there is none. The environment's (TMPDIR) comes first, then those of the
    system.
    """
    own = tempfile.gettempdir()
    for folder in (own, *_SHORT_FOLDERS):
        usable = folder == own or os.access(folder, os.W_OK | os.X_OK)
        if usable and socket_length(folder) <= _LONGEST_SOCKET:
            if folder != own:
                say(f"{folder} is used: the paths of Ray's sockets below {own} would be too long")
            return folder
    return None


def keep_logs(folder: Path) -> None:
    """Move the logs of a session that failed out of its folder; report their place."""
    logs = folder / "ray" / "session_latest" / "logs"
    if not logs.is_dir():
        return
    parent = folder.parent
    try:
        own = [p for p in parent.glob(f"{_LOGS_PREFIX}*") if p.stat().st_uid == os.getuid()]
        for old in sorted(own, key=lambda p: p.stat().st_mtime, reverse=True)[_KEPT_LOGS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
        kept = Path(tempfile.mkdtemp(prefix=_LOGS_PREFIX, dir=parent))
        shutil.copytree(logs, kept / "logs", ignore=_only_files)
    except (OSError, shutil.Error) as error:
        say(f"Ray's logs could not be kept: {error}")
        return
    say(f"Ray's logs are kept in {kept / 'logs'}")


def _only_files(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied: sockets and pipes, which have no content."""
    left_out = set()
    for name in names:
        path = Path(folder) / name
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            left_out.add(name)
    return left_out


def sweep(temporary: str) -> None:
    """Remove the folders of killed heads: no process has their lock."""
    for folder in Path(temporary).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / "lock").open("r+") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("--host", "--port", "--hpus", "--config"):
        parser.add_argument(name, required=True)
    asked = parser.parse_args(words)
    config = plain_json(asked.config)
    # the sockets of a session have long names: a folder right below the temporary one
    temporary = short_folder()
    if temporary is None:
        say(
            f"FAILED: Ray's sockets below TMPDIR={tempfile.gettempdir()} would have an AF_UNIX "
            f"path of more than {_LONGEST_SOCKET} bytes"
        )
        return 1
    sweep(temporary)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary))
    # locked as long as this process runs
    mark = (folder / "lock").open("w")
    fcntl.flock(mark, fcntl.LOCK_EX)
    status = 1
    try:
        status = run(config, int(asked.hpus), folder)
        return status
    finally:
        if status:
            keep_logs(folder)
        shutil.rmtree(folder, ignore_errors=True)


def run(config: dict[str, Any], hpus: int, folder: Path) -> int:
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stops.append(number))
    token = secrets.token_hex(32)
    path = folder / "token"
    path.touch(0o600)
    path.write_text(token, encoding="utf-8")
    here = str(Path(__file__).parent)
    theirs = os.environ.get("PYTHONPATH", "")
    os.environ.update(
        {
            FOLDER: str(folder / "sets"),
            OWN_THREADS: os.environ.get("OMP_NUM_THREADS", ""),
            "GAUDI_LAUNCH_PYTHONPATH": theirs,
            "PYTHONPATH": f"{here}:{theirs}" if theirs else here,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(path),
        }
    )
    # Ray reads these variables once, when it is imported
    import ray

    context = ray.init(
        address="local",
        resources={"HPU": hpus},
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=True,
        _temp_dir=str(folder / "ray"),
        _node_ip_address=_NODE,
    )
    try:
        # who registers a handler last has it
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: stops.append(number))
        dashboard = Dashboard(f"http://{context.dashboard_url}", token)
        say(f"Ray {ray.__version__} with {hpus} HPU, dashboard {dashboard.url}")
        say(f"token {path}")
        life = Life(config, dashboard, folder / "sets")
        status = life.run(stops)
        # a failed launch keeps its phase in the readers of this log
        say("Shutting down" if not status else "ending what was started")
        stop(folder / "sets", orderly=life.was_up)
        say("stopped")
        return status
    finally:
        ray.shutdown()


class Life:
    """A deployment from its launch to its end."""

    def __init__(self, config: dict[str, Any], dashboard: Dashboard, sets: Path) -> None:
        self.was_up = False
        self._config = config
        self._dashboard = dashboard
        self._sets = sets
        self._tails = Tails(sets, len(config["applications"][0]["args"]["sets"]))
        self._shown: list[str] = []

    def run(self, stops: list[int]) -> int:
        """Deploy, then wait for a signal (0) or the first deployment's failure (1)."""
        try:
            self._dashboard.deploy(self._config, stops)
        except (OSError, RuntimeError) as error:
            say(f"FAILED: Ray did not take the deployment: {error}")
            return 1
        next_status = 0.0
        while not stops:
            self._tails.read()
            now = time.monotonic()
            if now >= next_status:
                next_status = now + _STATUS_EVERY_SECONDS
                if self._failed():
                    return 1
            time.sleep(_TURN_SECONDS)
        return 0

    def _failed(self) -> bool:
        """Show what is new in the status; return True if the first deployment failed."""
        applications = self._dashboard.status()
        lines = summary(applications)
        for line in lines:
            if line not in self._shown:
                say(line)
        self._shown = lines or self._shown
        states = {application.get("status") for application in applications.values()}
        self.was_up = self.was_up or "RUNNING" in states
        if self.was_up or not (any(self._sets.glob("slot-*.failed")) or "DEPLOY_FAILED" in states):
            return False
        self._tails.read()
        for application in applications.values():
            if application.get("message"):
                say(f"FAILED: {application['message']}")
        return True


def stop(sets: Path, orderly: bool) -> None:
    """End Serve in order where it was up, then Ray, then the engines' leftovers.

    A replica that still starts would be waited for.
    """
    import ray
    from ray import serve

    if orderly:
        try:
            serve.shutdown()
        except Exception as error:
            say(f"Serve did not end in order: {error}")
    ray.shutdown()
    for lock in sets.glob("slot-*.lock"):
        handle = os.open(lock, os.O_RDWR)
        end_leftovers(handle)
        os.close(handle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
