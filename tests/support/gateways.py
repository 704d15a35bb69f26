"""A gateway with fake engines: real processes, streams and keys."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_launch.core.launch import waiting
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.stop import end
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.extensions.stack.gateway import gateway_job as gateway
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewaySettings, Tls
from tests.support.places import SUPPORT
from tests.support.waiting import GENEROUS, until, unused_port

KEYS = "# users of the tests\nalice sk-alice\nbob sk-bob\n"
_INSTALL_SECONDS = 300


@pytest.fixture(scope="session")
def gateway_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of engines in which the gateway's program is installed.

    The tests of a run share it. Skips with pip's reason where it cannot be installed.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "gateway-engines"
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "setup", "gateway"],
        env={**os.environ, "GAUDI_LAUNCH_ENGINES_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    if done.returncode:
        pytest.skip(f"the gateway's program cannot be installed here: {done.stderr.strip()[-300:]}")
    return folder


class FakeEngine:
    """One fake engine as a process."""

    def __init__(self, *models: str, gap: float = 0.02, first: float = 0.0) -> None:
        self.models = models
        self.port = unused_port()
        self._times = ("--gap", str(gap), "--first", str(first))
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = ["--port", str(self.port), *self._times, "--model", *self.models]
        self.process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "fake_engine.py"), *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() != ""

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(GENEROUS)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def seen(self) -> dict[str, Any]:
        """Return what it has received."""
        found: dict[str, Any] = call(self.port, path="/fake").document
        return found


@contextmanager
def engines(
    *of: Sequence[str], gap: float = 0.02, first: float = 0.0
) -> Iterator[list[FakeEngine]]:
    """Yield a running fake engine for each group of model names."""
    started = [FakeEngine(*names, gap=gap, first=first) for names in of]
    try:
        yield started
    finally:
        for engine in started:
            if engine.process.poll() is None:
                engine.kill()


@dataclass
class Answered:
    """The answer to one request; ``begun`` when a byte of a stream has come."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    stamps: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def begun(self) -> bool:
        return self.status == 200 and bool(self.body)

    @property
    def complete(self) -> bool:
        return self.status == 200 and not self.error and self.body.endswith(b"data: [DONE]\n\n")

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def call(
    port: int,
    document: object = None,
    *,
    path: str = "/v1/chat/completions",
    key: str | None = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    raw: bytes | None = None,
) -> Answered:
    """Send one request (a GET without a document) and read its answer as it comes."""
    answered = Answered()
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=GENEROUS, context=tls)
    body = raw if raw is not None else None if document is None else json.dumps(document).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    try:
        connection.request("GET" if body is None else "POST", path, body, sent)
        response = connection.getresponse()
        answered.status = response.status
        answered.headers = {name.lower(): value for name, value in response.getheaders()}
        while piece := response.read1(1 << 16):
            answered.stamps.append(time.monotonic())
            answered.body += piece
    except (OSError, http.client.HTTPException) as error:
        answered.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return answered


def chat(
    model: str, text: str = "hi", *, tokens: int = 5, stream: bool = True, **more: Any
) -> dict[str, Any]:
    """Return a chat request.

    The model's name comes after the prompt, as OpenAI's client sends it.
    """
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "model": model, "max_tokens": tokens, "stream": stream, **more}


def many(
    port: int, documents: Sequence[object], *, at_once: int, key: str | None = None
) -> list[Answered]:
    """Send these requests, ``at_once`` of them at a time."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda document: call(port, document, key=key), documents))


def backend(model: str, *replicas: FakeEngine, **more: Any) -> Backend:
    return Backend(model, {engine.url: "" for engine in replicas}, **more)


def keys_file(folder: Path, content: str = KEYS) -> Path:
    path = folder / "keys"
    path.write_text(content, encoding="utf-8")
    path.chmod(0o600)
    return path


def certificate_in(folder: Path) -> Tls:
    """Write a certificate of 127.0.0.1 and its key; skips without openssl."""
    folder.mkdir(exist_ok=True)
    made = Tls(folder / "c.pem", folder / "k.pem")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name)
    done = subprocess.run(
        [*words, "-keyout", str(made.key), "-out", str(made.certificate)], capture_output=True
    )
    if done.returncode:
        pytest.skip("openssl makes no certificate here")
    return made


@contextmanager
def running(
    name: str, backends: Sequence[Backend], settings: GatewaySettings, installed: Path
) -> Iterator[int]:
    """Yield the port of a gateway that answers; nothing of it is left afterwards."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(installed))
        gateway.start(name, backends, settings)
        try:
            waiting.until_ready(name, GENEROUS)
            until_up(settings.port, len(backends))
            yield settings.port
        finally:
            end(find(name), 0, Silent())


def members_of(name: str) -> dict[str, psutil.Process]:
    """Return a gateway's launcher, its process, and HAProxy's masters and workers."""
    state = find(name).state
    found = {"launcher": psutil.Process(state["launcher"]["pid"])}
    found["process"] = psutil.Process(state["engine_process"]["pid"])
    for master in found["process"].children():
        command = master.cmdline()
        if not command:
            # it is ending
            continue
        kind = Path(command[-1]).stem
        found[kind] = master
        for worker in master.children():
            found[f"{kind} worker"] = worker
    return found


def until_up(port: int, sections: int) -> None:
    """Wait for HAProxy's first check of every engine to end."""

    def up() -> bool:
        page = call(port, path="/metrics").body.decode()
        lines = [
            line for line in page.splitlines() if line.startswith("haproxy_backend_active_servers{")
        ]
        models = [line for line in lines if 'proxy="model' in line]
        return len(models) == sections and all(not line.endswith(" 0") for line in models)

    until(up, "every model has an engine that is up")
