"""Run HAProxy as children, and answer for models that do not answer.

It gets the path of gateway.json, and where that folder must not be written another one for sockets
and maps: the files are copied there. One HAProxy has the address, another one serves large requests
(haproxy_config.py). HAProxy forwards /v1/models to the answerer, and requests for a model without
an engine that answers: 503 with Retry-After and the time left of its warm-up. SIGHUP reads the
settings and the keys again without ending a request; SIGTERM and SIGINT end both. Standard library
only, Python 3.10.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.plain_json import plain_json

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
# an answer about engines is used for this time: a client that polls must not burden them
_FRESH_SECONDS = 1.0
_ENGINE_SECONDS = 2.0
_MASTER_SECONDS = 5.0
_MOST_BYTES = 1 << 20
_LEAST_RETRY = 5
_MOST_RETRY = 3600
# an HAProxy that was killed is started again at once, this often within this time
_MOST_ENDS = 5
_ENDS_SECONDS = 10.0
# HAProxy's exit status where it refuses its configuration
_REFUSED = 1
# requests that run when the gateway is stopped have this time; its launcher kills it after 20 s
_STOP_SECONDS = 10.0
APPLIED = "applied.cfg"
TLS = "tls.pem"
# phases of a service's state.json in which a model will answer without anybody's doing
_COMING = (
    *("start", "load", "profile", "kv_cache", "multimodal", "warmup_prompt", "warmup_decode"),
    *("graph_prompt", "graph_decode", "sampler", "answering", "waiting"),
)
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Gateway:
    """The settings of gateway.json, read again on SIGHUP."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, dict[str, Any]]] = {}
        self.settings: dict[str, Any] = {}

    def read(self) -> None:
        """Read the settings, and write the users, TLS files and their digest for HAProxy."""
        content = self._path.read_text(encoding="utf-8")
        self.settings = wanted = plain_json(content)
        users = _taken(Path(wanted["users_map"]), lambda: users_in(wanted["keys_file"]))
        tls = b""
        if wanted["tls"]:
            tls = _taken(Path(TLS), lambda: usable(tls_in(wanted["tls"])))
        digest = digest_of(content, users, tls, lambda name: Path(name).read_bytes())
        # HAProxy shows it: what it runs with can be compared with what it is to run with
        _put(Path(APPLIED), f"global\n    description {digest}\n".encode())

    def revoke(self) -> None:
        """Delete keys that are not in force from workers that run.

        A client of HTTP/2 may send new requests to one with older settings while a stream runs.
        """
        master, users = f"{self.settings['config']}.sock", self.settings["users_map"]
        kept = Path(users).read_text(encoding="utf-8").splitlines()
        listed = asked(master, "show proc") if self.settings["keys_file"] else ""
        for worker in re.findall(r"^(\d+)\s+worker\b", listed, re.MULTILINE):
            for entry in asked(master, f"@!{worker} show map {users}").splitlines():
                known = entry.partition(" ")[2]
                if known and known not in kept:
                    asked(master, f"@!{worker} del map {users} {known.split()[0]}")

    def state(self, model: dict[str, Any]) -> dict[str, Any]:
        """Return a model's state: ready, the phase of its launch, or down.

        It is cached for a second.
        """
        name = model["model"]
        with self._lock:
            when, found = self._seen.get(name, (-math.inf, {}))
        if time.monotonic() - when < _FRESH_SECONDS:
            return found
        found = self._look(model)
        with self._lock:
            self._seen[name] = (time.monotonic(), found)
        return found

    def _look(self, model: dict[str, Any]) -> dict[str, Any]:
        replicas = model["replicas"]
        cards: list[dict[str, Any] | None] = [None] * len(replicas)

        def ask(at: int) -> None:
            cards[at] = _card(replicas[at]["url"], [model["model"], *model["aliases"]])

        threads = [
            threading.Thread(target=ask, args=(at,), daemon=True) for at in range(len(replicas))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_ENGINE_SECONDS)
        ready = [card for card in cards if card is not None]
        found: dict[str, Any] = {"replicas": len(replicas), "replicas_ready": len(ready)}
        if ready:
            return {**found, "state": "ready", "left_seconds": None, "card": ready[0]}
        phases = [self._phase(replica["service"]) for replica in replicas]
        coming = [each for each in phases if each[0] in _COMING]
        if not coming:
            return {**found, "state": phases[0][0] or "down", "left_seconds": None}
        known = [left for _, left in coming if left is not None]
        return {**found, "state": coming[0][0], "left_seconds": min(known) if known else None}

    def _phase(self, service: str) -> tuple[str, float | None]:
        folder = self.settings["services"]
        if not service or not folder:
            return "down", None
        try:
            state = plain_json((Path(folder) / service / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "down", None
        if not isinstance(state, dict) or not _runs(state.get("launcher")):
            return "down", None
        phase, left = state.get("phase"), state.get("left_seconds")
        # "ready": it was, and does not answer now
        shown = phase if isinstance(phase, str) and phase != "ready" else "down"
        usable = isinstance(left, int | float) and not isinstance(left, bool) and 0 <= left < 1e7
        return shown, float(left) if usable and isinstance(left, int | float) else None

    def models(self) -> dict[str, Any]:
        """Return OpenAI's list of models; every name of a model is an entry."""
        data = []
        for model in self.settings["models"]:
            found = self.state(model)
            card = found.get("card") or {"object": "model", "owned_by": "gaudi-launch"}
            own = {
                key: found[key] for key in ("state", "replicas", "replicas_ready", "left_seconds")
            }
            for name in (model["model"], *model["aliases"]):
                data.append({**card, "id": name, "root": model["model"], **own})
        return {"object": "list", "data": data}

    def model(self, name: str) -> dict[str, Any] | None:
        """Return the settings of the model of this name."""
        for model in self.settings["models"]:
            if name in (model["model"], *model["aliases"]):
                return dict(model)
        return None


def _runs(launcher: object) -> bool:
    """Return False for a launcher that is recorded and gone.

    An early record has none.
    """
    if not isinstance(launcher, dict):
        return True
    try:
        content = Path(f"/proc/{int(launcher['pid'])}/stat").read_bytes()
        # field 22, the start of the process, after the name in brackets (proc(5))
        return int(content.rpartition(b")")[2].split()[19]) == int(launcher["ticks"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False


def users_of(content: str) -> list[str]:
    """Return the lines of the users' map: SHA-256 of the key, user.

    Raises ValueError with the number of a line that is not ``USER KEY``.
    """
    lines = []
    for number, line in enumerate(content.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not USER.fullmatch(words[0]):
            raise ValueError(f"line {number} of the keys file is not USER KEY")
        lines.append(f"{hashlib.sha256(words[1].encode()).hexdigest()} {words[0]}")
    return lines


def users_in(keys_file: str | None) -> bytes:
    """Return the users' map of a keys file.

    Raises OSError, and ValueError without a key.
    """
    if keys_file is None:
        return b""
    lines = users_of(Path(keys_file).read_text(encoding="utf-8"))
    if not lines:
        raise ValueError(f"{keys_file} has no key")
    return "".join(f"{line}\n" for line in lines).encode()


def tls_in(tls: dict[str, str] | None) -> bytes:
    """Return a certificate and its key as one text. Raises OSError."""
    paths = dict.fromkeys((tls or {}).values())
    return b"\n".join(Path(path).read_bytes() for path in paths)


def digest_of(settings: str, users: bytes, tls: bytes, read: Callable[[str], bytes]) -> str:
    """Return the SHA-256 of all that a gateway serves with, by content.

    ``settings`` is the text of gateway.json, ``users`` the users' map, ``tls`` certificate and key.
    ``read`` returns the content of a file of the folder.
    """
    parts = [settings.encode(), users, tls, *map(read, plain_json(settings)["files"])]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _card(url: str, names: list[str]) -> dict[str, Any] | None:
    """Return the engine's own entry of the model; None where it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/v1/models", timeout=_ENGINE_SECONDS) as answer:
            listed = plain_json(answer.read(_MOST_BYTES))["data"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get("id") in names:
            return entry
    # it answers, under another name: the request itself will show that
    return {"object": "model"}


def _put(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.new")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    part.replace(path)


def _taken(path: Path, newest: Callable[[], bytes]) -> bytes:
    """Write and return what files of the user contain.

    What is in force stays where they cannot be used: HAProxy may have to start again.
    """
    try:
        _put(path, newest())
    except (OSError, ValueError) as error:
        if not path.is_file():
            raise
        print(f"gateway: {path.name} is not made again, the earlier one stays: {error}", flush=True)
    return path.read_bytes()


def usable(pem: bytes) -> bytes:
    """Return a certificate with its key, both of which a client took by TLS.

    Raises OSError: not a pair, a password is needed, expired or not valid yet.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # any issuer will do
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with os.fdopen(os.memfd_create("pem"), "wb", buffering=0) as file:
        file.write(pem)
        path = f"/proc/self/fd/{file.fileno()}"
        # no password is requested for an encrypted key
        server.load_cert_chain(path, password=str)
        client.load_verify_locations(path)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (asking, answering, asking):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return pem


def asked(master: str, command: str) -> str:
    """Return the answer on a master's socket; "" where none comes in time.

    A master that takes new settings closes its socket for a moment: that is not an empty answer.
    """
    deadline = time.monotonic() + _MASTER_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_MASTER_SECONDS)
            connection.connect(master)
            connection.sendall(f"{command}\n".encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile(encoding="utf-8") as answer:
                if found := answer.read():
                    return found
        time.sleep(0.02)
    return ""


class Answerer(BaseHTTPRequestHandler):
    """Answers what no engine can: the list of models, and that a model is not ready."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    gateway: Gateway

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: HAProxy logs each request."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is not a request in OpenAI's form, too."""
        self.close_connection = True
        self._send(code, _error(message or str(code), "invalid_request_error", "request"))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].removeprefix("/v1/models").strip("/")
        listed = self.gateway.models()
        if not name:
            self._send(200, listed)
            return
        entries = [entry for entry in listed["data"] if entry["id"] == name]
        if entries:
            self._send(200, entries[0])
            return
        self._send(
            404,
            _error(self.gateway.settings["texts"]["api_model"], "invalid_request_error", "model"),
        )

    def do_POST(self) -> None:
        self._skip_body()
        name = self.headers.get("x-gaudi-model", "")
        texts, model = self.gateway.settings["texts"], self.gateway.model(name)
        if model is None:
            self._send(404, _error(texts["api_model"], "invalid_request_error", "model"))
            return
        found = self.gateway.state(model)
        left = found["left_seconds"]
        coming = found["state"] in (*_COMING, "ready")
        sentence = texts["api_down"]
        if coming:
            sentence = texts["api_warming"] if left is None else texts["api_warming_left"]
        sentence = sentence.format(model=name, state=found["state"], seconds=math.ceil(left or 0))
        document = _error(sentence, "service_unavailable", "model_not_ready")
        document["error"] |= {key: found[key] for key in ("state", "replicas", "left_seconds")}
        retry = _LEAST_RETRY if coming else 30
        if left is not None:
            retry = min(max(math.ceil(left), _LEAST_RETRY), _MOST_RETRY)
        if found["state"] == "ready":
            retry = 1
        self._send(503, document, {"Retry-After": str(retry)})

    def _skip_body(self) -> None:
        left = int(self.headers.get("content-length") or 0)
        while left > 0:
            read = self.rfile.read(min(left, 1 << 16))
            if not read:
                break
            left -= len(read)
        # a body of unknown length was not read: the connection cannot be used again
        self.close_connection = self.close_connection or "content-length" not in self.headers

    def _send(
        self, status: int, document: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        content = json.dumps(document, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _error(sentence: str, kind: str, code: str) -> dict[str, Any]:
    return {"error": {"message": sentence, "type": kind, "code": code}}


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def serve(gateway: Gateway, path: Path) -> _Server:
    """Start the answerer on a socket that only this user can reach."""
    path.unlink(missing_ok=True)
    handler = type("Handler", (Answerer,), {"gateway": gateway})
    before = os.umask(0o177)
    try:
        server = _Server(str(path), handler)
    finally:
        os.umask(before)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True
    ).start()
    return server


class Children:
    """The processes of HAProxy, by their configurations."""

    def __init__(self, program: str, configs: tuple[str, ...]) -> None:
        self._program = program
        self._stopping = False
        self._ends: list[float] = []
        self._running = {config: self._start(config) for config in configs}

    def _start(self, config: str) -> subprocess.Popen[bytes]:
        # a master that serves with workers: it takes new settings without closing its address, and
        # answers questions on its socket
        master = f"unix@{config}.sock,mode,600"
        words = [self._program, "-W", "-db", "-S", master, "-f", APPLIED, "-f", config]
        # a ``preexec_fn`` that ends HAProxy when this process is killed
        parent = os.getpid()

        def prepare() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)

        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=prepare)
        print(f"gateway: HAProxy started as process {child.pid} ({config})", flush=True)
        return child

    def send(self, number: int) -> None:
        """Send both a signal."""
        for child in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    def stop(self) -> None:
        """End both: they stop listening now, and end with their requests, or later."""
        self._stopping = True
        self.send(signal.SIGUSR1)
        late = threading.Timer(_STOP_SECONDS, self.send, (signal.SIGTERM,))
        late.daemon = True
        late.start()

    def wait(self) -> int:
        """Return the status of the first that ends for good, when both have ended."""
        while True:
            # a signal handler may end both while this waits
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for config, child in self._running.items():
                status = child.poll()
                if status is None:
                    continue
                if self._stopping or not self._again(config, status):
                    if not self._stopping:
                        self.send(signal.SIGTERM)
                    for child in self._running.values():
                        child.wait()
                    return status

    def _again(self, config: str, status: int) -> bool:
        """Start one again that was killed; False for one that cannot stay."""
        now = time.monotonic()
        self._ends = [each for each in self._ends if now - each < _ENDS_SECONDS] + [now]
        if status == _REFUSED or len(self._ends) > _MOST_ENDS:
            print(f"gateway: HAProxy does not stay ({config})", flush=True)
            return False
        self._running[config] = self._start(config)
        return True


def copied(source: Path, target: Path) -> None:
    """Copy the files of a folder, not its folders: a mounted one has some."""
    if source == target:
        return
    target.mkdir(parents=True, exist_ok=True)
    for each in filter(Path.is_file, source.iterdir()):
        shutil.copyfile(each, target / each.name)


def run(path: Path, folder: Path) -> int:
    """Run HAProxy and the answerer until one ends; return the exit status.

    ``folder`` is for what they write; the settings are copied there.
    """
    copied(path.parent, folder)
    os.chdir(folder)
    gateway = Gateway(Path(path.name))
    gateway.read()
    wanted = gateway.settings
    server = serve(gateway, Path(wanted["socket"]))
    children = Children(wanted["program"], (wanted["large_config"], wanted["config"]))

    def end(number: int, frame: object) -> None:
        children.stop()

    def again(number: int, frame: object) -> None:
        try:
            copied(path.parent, folder)
            gateway.read()
            gateway.revoke()
        except (OSError, ValueError, KeyError) as error:
            print(f"gateway: the settings are not read again: {error}", flush=True)
            return
        children.send(signal.SIGUSR2)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, again)
    status = children.wait()
    server.shutdown()
    return status if status >= 0 else 128 - status


def main() -> None:
    """Run the gateway of the settings file that is the first argument."""
    # until the settings are read; by default the signal ends a process
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    path = Path(sys.argv[1]).absolute()
    # a second argument is a folder for what is written; by default that of the settings
    folder = Path(*sys.argv[2:3] or [str(path.parent)]).absolute()
    try:
        status = run(path, folder)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"gateway: {error}")
    sys.exit(status)


if __name__ == "__main__":
    main()
