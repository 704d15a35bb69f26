"""The daemon of `docker_stub`: containers are processes that belong to the test.

No other test can end them. It reads a ``docker run`` line as docker does: an unknown option is
refused, a secret given by name is taken from the client's environment, a name that is taken is
status 125, and the published port is what `trivial_tgi` opens.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENGINE = Path(__file__).with_name("trivial_tgi.py")
# docs: docker run
SWITCHES = {"--rm", "--init", "--detach", "--read-only"}
WITH_VALUE = {
    "--name",
    "-p",
    "-v",
    "--mount",
    "-e",
    "--runtime",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--shm-size",
    "--tmpfs",
    "--user",
    "--ipc",
    "--cpuset-cpus",
    "--network",
    "--entrypoint",
    "--ulimit",
    "--stop-timeout",
    *(f"--health-{word}" for word in ("cmd", "start-period", "retries", "interval", "timeout")),
}


@dataclass
class Run:
    """One ``docker run`` as it was understood."""

    options: dict[str, list[str]]
    image: str
    argv: list[str]
    environment: dict[str, str]

    @property
    def name(self) -> str:
        return self.options["--name"][0]


def read(words: list[str], client: dict[str, str]) -> Run:
    """Return the parsed command. Raises ValueError for what docker would refuse."""
    options: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name in SWITCHES and not equals:
            options[name] = []
        elif name in WITH_VALUE:
            options.setdefault(name, []).append(value if equals else rest.pop(0))
        else:
            raise ValueError(f"unknown flag: {name}")
    environment = {}
    for pair in options.get("-e", ()):
        name, equals, value = pair.partition("=")
        if equals:
            environment[name] = value
        elif name in client:
            environment[name] = client[name]
    return Run(options, rest[0], rest[1:], environment)


@dataclass
class Daemon:
    """Listens on a socket in ``folder``.

    ``do`` is what the engines are to do (TRIVIAL_DO).
    """

    folder: Path
    do: str = ""
    runtimes: tuple[str, ...] = ("runc", "habana")
    registry: bool = True
    images: set[str] = field(default_factory=set)
    runs: list[Run] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    containers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "docker.sock"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()
        for process in list(self.containers.values()):
            process.kill()
            process.wait()

    @property
    def living(self) -> list[str]:
        return [name for name, process in self.containers.items() if process.poll() is None]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._client, args=(connection,), daemon=True).start()

    def _client(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r", encoding="utf-8") as words:
            asked = json.loads(words.readline() or "{}")
            if asked:
                self.asked.append(asked["argv"])
                self._answer(connection, words, asked["argv"], asked["environment"])

    def _answer(
        self, connection: socket.socket, words: Any, argv: list[str], client: dict[str, str]
    ) -> None:
        def tell(**answer: object) -> None:
            # when the client is gone, the container continues
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

        match argv:
            case ["info", "--format", "{{json .Runtimes}}"]:
                tell(out=json.dumps({name: {} for name in self.runtimes}) + "\n", status=0)
            case ["image", "inspect", image]:
                tell(out="[]\n", status=0 if image in self.images else 1)
            case ["pull", image]:
                known = self.registry and image.startswith("ghcr.io/huggingface/")
                self.images |= {image} if known else set()
                tell(out=f"{image}: pulled\n", status=0 if known else 1)
            case ["container", "inspect", name]:
                tell(status=0 if name in self.living else 1)
            case ["rm", "--force", name]:
                if name in self.living:
                    self.containers[name].kill()
                    self.containers[name].wait()
                tell(out=f"{name}\n", status=0)
            case ["run", *rest]:
                self._run(tell, words, rest, client)
            case _:
                tell(err=f"docker: {argv[0]} is not a docker command.\n", status=125)

    def _run(self, tell: Any, words: Any, argv: list[str], client: dict[str, str]) -> None:
        try:
            run = read(argv, client)
        except (ValueError, IndexError) as error:
            tell(err=f"docker: {error}\n", status=125)
            return
        if run.name in self.living:
            tell(err=f'docker: Conflict. The container name "/{run.name}" is in use.\n', status=125)
            return
        self.runs.append(run)
        # an image whose program is named is vLLM's, on the host's network; the other is TGI's
        vllm = "--entrypoint" in run.options
        engine = ENGINE.with_name("trivial_engine.py") if vllm else ENGINE
        port = "" if vllm else run.options["-p"][0].split(":")[-2]
        # the image's entry point is a shell that is deaf to SIGTERM as process 1
        deaf = self.do == "deaf" or "--init" not in run.options
        environment = {
            "PATH": os.environ["PATH"],
            "TRIVIAL_DO": self.do,
            "TRIVIAL_PORT": port,
            **run.environment,
        }
        inside = self.folder / f"{run.name}.pids"
        inside.unlink(missing_ok=True)
        environment["TRIVIAL_PIDS"] = str(inside)
        process = subprocess.Popen(
            [sys.executable, str(engine), *run.argv],
            env={**environment, **({"TRIVIAL_DEAF": "1"} if deaf else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.containers[run.name] = process

        def signals() -> None:
            for line in words:
                number = json.loads(line).get("signal")
                if number and process.poll() is None:
                    process.send_signal(signal.Signals(number))

        def empty() -> None:
            # all of a container ends with its first process
            process.wait()
            for pid in inside.read_text(encoding="utf-8").split() if inside.exists() else ():
                for end in (os.killpg, os.kill):
                    with contextlib.suppress(ProcessLookupError):
                        end(int(pid), signal.SIGKILL)

        threading.Thread(target=signals, daemon=True).start()
        threading.Thread(target=empty, daemon=True).start()
        assert process.stdout is not None
        for line in process.stdout:
            tell(out=line)
        status = process.wait()
        tell(status=128 - status if status < 0 else status)
