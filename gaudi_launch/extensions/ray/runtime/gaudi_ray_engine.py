"""A planned engine as the subprocess of one replica: start, query, watch, end.

It runs on one set of cards.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from gaudi_ray_slots import Slot, end_session, members, plain_json

_PR_SET_PDEATHSIG = 1
PORT = "{port}"
VISIBLE = "HABANA_VISIBLE_MODULES"
NOSET = "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"
# the user's value, kept by the head: Ray overwrites it in its workers (one thread for an actor
# without CPUs)
OWN_THREADS = "GAUDI_LAUNCH_OMP_NUM_THREADS"

_libc = ctypes.CDLL(None, use_errno=True)


def environment_of(slot: Slot, environ: dict[str, str]) -> dict[str, str]:
    """Return the engine's variables: the node's without Ray's, and this set's cards.

    Ray's IDs come in no order (seen: 5,4), so they are sorted where Ray was not configured to leave
    the variable alone.
    """
    kept = {
        k: v
        for k, v in environ.items()
        if not k.startswith(("RAY_", "GAUDI_LAUNCH_")) and k != "PYTHONPATH"
    }
    kept.pop("OMP_NUM_THREADS", None)
    if environ.get(OWN_THREADS):
        kept["OMP_NUM_THREADS"] = environ[OWN_THREADS]
    if environ.get("GAUDI_LAUNCH_PYTHONPATH"):
        kept["PYTHONPATH"] = environ["GAUDI_LAUNCH_PYTHONPATH"]
    if not slot.modules:
        kept.pop(VISIBLE, None)
    elif environ.get(NOSET) == "1":
        kept[VISIBLE] = ",".join(map(str, slot.modules))
    else:
        ids = [word for word in environ.get(VISIBLE, "").split(",") if word.strip().isdigit()]
        kept[VISIBLE] = ",".join(map(str, sorted(map(int, ids))) if ids else map(str, slot.modules))
    return kept


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


class EngineChild:
    """One engine server on loopback.

    Raises RuntimeError from `wait_ready` when it ends before it answers.
    """

    def __init__(self, argv: Sequence[str], slot: Slot) -> None:
        self.slot = slot
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ending = False
        self._key = os.environ.get("VLLM_API_KEY", "")
        words = [str(self.port) if word == PORT else word for word in argv]
        with slot.output() as log:
            mine = set(slot.cpus) & os.sched_getaffinity(0)

            def prepare() -> None:
                # a replica that is killed must not leave its engine on the cards
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
                if mine:
                    os.sched_setaffinity(0, mine)

            self.process = subprocess.Popen(
                [*bind_words(slot), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment_of(slot, dict(os.environ)),
                start_new_session=True,
                preexec_fn=prepare,
            )
        slot.sign(self.process.pid)

    def wait_ready(self) -> None:
        """Wait until the engine answers a real completion.

        /health was seen to succeed in an engine that failed at its first completion.
        """
        while True:
            status = self.process.poll()
            if status is not None:
                self.slot.fail(str(status))
                raise RuntimeError(f"the engine ended with {status} before it answered")
            if self.answers():
                break
            time.sleep(1.0)

    def answers(self) -> bool:
        if self._ask("/health", 5.0) is None:
            return False
        listed = self._ask("/v1/models", 10.0)
        try:
            name = plain_json(listed or b"")["data"][0]["id"]
        except (ValueError, KeyError, IndexError, TypeError):
            return False
        question = {"model": name, "prompt": "1", "max_tokens": 1, "temperature": 0}
        return self._ask("/v1/completions", 600.0, question) is not None

    def healthy(self) -> bool:
        return self.process.poll() is None and self._ask("/health", 10.0) is not None

    def watch(self, lost: Callable[[int], Any]) -> None:
        """Call ``lost`` with the exit status when the engine ends unexpectedly."""

        def wait() -> None:
            status = self.process.wait()
            if not self.ending:
                lost(status)

        threading.Thread(target=wait, daemon=True).start()

    def end(self, timeout: float = 8.0) -> None:
        """End the engine and its processes.

        Its first process is signalled alone: it ends its workers in the right order.
        """
        self.ending = True
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        if members(self.process.pid):
            end_session(self.process.pid, 2.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2.0)

    def _ask(
        self, path: str, timeout: float, question: dict[str, Any] | None = None
    ) -> bytes | None:
        """Return the body of a 200, else None.

        A completion that this kind of model does not have also counts.
        """
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        body = None
        if question is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(question).encode()
        request = Request(self.url + path, data=body, headers=headers)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=timeout) as response:
                content: bytes = response.read()
                return content
        except HTTPError as error:
            with error:
                if question is not None and error.code in (400, 404, 405, 501):
                    return b""
                return None
        except (URLError, OSError, ValueError):
            return None


def bind_words(slot: Slot) -> list[str]:
    """Return the command prefix that binds the CPUs of this set.

    It also prefers the set's memory node.
    """
    numactl = shutil.which("numactl")
    if not slot.cpus or numactl is None or not set(slot.cpus) <= os.sched_getaffinity(0):
        return []
    words = [numactl, "-C", ",".join(map(str, slot.cpus))]
    if slot.memory_node is None:
        return words
    return [*words, "-p", str(slot.memory_node)]
