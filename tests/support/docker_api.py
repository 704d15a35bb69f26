"""A container engine's HTTP interface, as far as docker's client needs it.

The client runs ``docker run``. Its containers are `trivial_tgi` processes that belong to the test.
So the real client reads our arguments, forwards signals and is killed. Interface: docs.docker.com,
Engine API 1.45.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ENGINE = Path(__file__).with_name("trivial_tgi.py")


@dataclass
class Api:
    """Listens on a socket in ``folder``; DOCKER_HOST is its address for the client."""

    folder: Path
    created: dict[str, dict[str, Any]] = field(default_factory=dict)
    containers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    deaf: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "docker.sock"
        self.address = f"unix://{path}"
        self._server = _Server(str(path), _Handler)
        self._server.api = self
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for process in list(self.containers.values()):
            process.kill()
            process.wait()

    @property
    def living(self) -> list[str]:
        return [name for name, process in self.containers.items() if process.poll() is None]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Return a container that was created, as a process.

        Without ``Init`` it is deaf, as a shell of number 1 is.
        """
        wanted = self.created[name]
        host = wanted["HostConfig"]
        environment = dict(pair.split("=", 1) for pair in wanted.get("Env") or ())
        environment |= {
            "PATH": os.environ["PATH"],
            "TRIVIAL_PORT": host["PortBindings"]["80/tcp"][0]["HostPort"],
        }
        if self.deaf or not host.get("Init"):
            environment["TRIVIAL_DEAF"] = "1"
        self.containers[name] = subprocess.Popen(
            [sys.executable, str(ENGINE), *wanted["Cmd"]],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self.containers[name]


def nothing(name: str) -> tuple[int, object]:
    return 404, {"message": f"No such container: {name}"}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    api: Api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, document: object = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.45")
        self.send_header("Ostype", "linux")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        words = [word for word in url.path.split("/") if word and not word.startswith("v1.")]
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api.asked.append(f"{self.command} /{'/'.join(words)} {asked.get('signal', '')}".strip())
        match [self.command, *words]:
            case ["GET" | "HEAD", "_ping"]:
                self.answer(200, "OK")
            case ["GET", "info"]:
                self.answer(200, {"Runtimes": {"runc": {"path": "runc"}, "habana": {"path": "x"}}})
            case ["GET", "images", *_, "json"]:
                self.answer(200, {"Id": "sha256:1"})
            case ["POST", "containers", "create"]:
                api.created[asked["name"]] = json.loads(body)
                self.answer(201, {"Id": asked["name"], "Warnings": []})
            case ["GET", "containers", name, "json"]:
                self.answer(*((200, {"Id": name}) if name in api.living else nothing(name)))
            case ["POST", "containers", name, "attach"]:
                self.attach(name)
            case ["POST", "containers", name, "wait"]:
                self.wait(name)
            case ["POST", "containers", name, "start"]:
                api.start(name)
                self.answer(204)
            case ["POST", "containers", name, "kill"]:
                api.containers[name].send_signal(
                    signal.Signals[f"SIG{asked['signal'].removeprefix('SIG')}"]
                )
                self.answer(204)
            case ["DELETE", "containers", name]:
                known = name in api.living
                if known:
                    api.containers[name].kill()
                    api.containers[name].wait()
                self.answer(*((204, None) if known else nothing(name)))
            case _:
                self.answer(404, {"message": "page not found"})

    do_GET = do_HEAD = do_POST = do_DELETE = handle_any

    def attach(self, name: str) -> None:
        """Send the container's output in frames.

        A frame is eight bytes with stream and length, then text.
        """
        self.send_response(101)
        self.send_header("Content-Type", "application/vnd.docker.multiplexed-stream")
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "tcp")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        api = self.server.api
        while name not in api.containers:
            threading.Event().wait(0.01)
        output = api.containers[name].stdout
        assert output is not None
        gone = False
        for line in output:
            try:
                if not gone:
                    self.wfile.write(struct.pack(">BxxxL", 1, len(line)) + line)
            except OSError:
                gone = True  # the client is gone; the container continues

    def wait(self, name: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        api = self.server.api
        while name not in api.containers:
            threading.Event().wait(0.01)
        status = api.containers[name].wait()
        text = json.dumps({"StatusCode": status if status >= 0 else 128 - status}).encode()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text))
