"""Run the CPU engine in real containers: build, serve, kill, compose.

`containers.py --base-image IMAGE [--short]`

As root, with podman and a base image of this machine (for example of mmdebstrap with python3,
python3-venv and libnuma1, by `podman import`). An image is built from an index of stand-ins, and
searched for its address; the real one is built by `setup cpu --in podman`. Then the demo model is
served in podman, and by the docker client through podman's socket: ready, an answer, Ctrl-C, and
SIGKILL of the engine, the client and the launcher. Compose starts the rendered file and stops it.
After each part no container may remain. ``--short`` leaves out the kills. What is needed of podman
(runc, limits) comes from CONTAINERS_CONF. The exit status is 0 when all passed. The rules of the
Gaudi runtime are tested by tests/commands/serve/test_serve_in_podman.py with a stand-in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.vllm_cpu.image import IMAGE
from tests.support.packs import stand_in_index

NAME = "acceptance-container"
_START_SECONDS = 240.0
_END_SECONDS = 60.0


def unused_port() -> int:
    """Return a port that the kernel gives."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def launcher(*words: str) -> list[str]:
    return [sys.executable, "-m", "gaudi_launch", *words]


def podman(*words: str) -> str:
    """Run podman and return its output."""
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def containers() -> list[str]:
    """Return the names of the containers of this program."""
    names = podman("ps", "--all", "--format", "{{.Names}}").split()
    return [name for name in names if name.startswith("gaudi-launch-")]


def wait_for(true: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition; a missing one ends the program."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.2)


def ask(port: int) -> str:
    """Return the answer of the model to a question with one answer."""
    question = {"role": "user", "content": "What is the capital of France?"}
    body = {"model": "demo", "temperature": 0, "messages": [question]}
    request = Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with build_opener(ProxyHandler({})).open(request, timeout=120) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


@contextlib.contextmanager
def served(
    program: str, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve the demo model in a container; yield its launcher and its port."""
    port = unused_port()
    words = ("serve", "-w", "demo", "--in", program, "-p", str(port), "--name", NAME)
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            launcher(*words, "--no-doctor"),
            env=environment,
            stdout=output,
            stderr=output,
            text=True,
        ) as process,
    ):

        def is_ready() -> bool:
            output.seek(0)
            found = output.read()
            if process.poll() is not None:
                sys.exit(f"{program}: the service ended with {process.returncode}\n{found[-3000:]}")
            return "Ready after" in found

        try:
            wait_for(is_ready, "readiness", _START_SECONDS)
            yield process, port
        finally:
            process.kill()


def check_ended(process: subprocess.Popen[str], status: int, what: str) -> None:
    """Check the launcher's exit status, and that no container remains."""
    try:
        found = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        sys.exit(f"{what}: the launcher did not end")
    wait_for(lambda: containers() == [], f"{what}: the container's end", _END_SECONDS)
    if found != status:
        sys.exit(f"{what}: exit status {found} instead of {status}")
    print(f"{what}: exit status {found}, no container remains", flush=True)


def serve(program: str, environment: dict[str, str]) -> None:
    """Serve, answer, look at the container's rights, and stop it."""
    began = time.monotonic()
    with served(program, environment) as (process, port):
        seconds = time.monotonic() - began
        answer = ask(port)
        if "Paris" not in answer:
            sys.exit(f"{program}: the model answered {answer!r}")
        (name,) = containers()
        rights = podman(
            "inspect", "--format", "{{.HostConfig.ReadonlyRootfs}} {{len .EffectiveCaps}}", name
        )
        user = podman("exec", name, "id", "-u")
        if rights != "true 0" or user == "0":
            sys.exit(f"{program}: read-only root and capabilities {rights}, user {user}")
        print(f"{program}: ready in {seconds:.0f} s, user {user}, answer: {answer}", flush=True)
        process.send_signal(signal.SIGINT)
        check_ended(process, 130, f"{program}: Ctrl-C")


def kill(part: str, environment: dict[str, str]) -> None:
    """Kill one part of a service in podman, and check what remains."""
    with served("podman", environment) as (process, _):
        state = store.read(store.service_dir(NAME), "state.json") or {}
        (name,) = containers()
        engine = int(podman("inspect", "--format", "{{.State.Pid}}", name))
        pid = {"engine": engine, "client": int(state["pid"]), "launcher": process.pid}[part]
        os.kill(pid, signal.SIGKILL)
        check_ended(process, -9 if part == "launcher" else 4, f"SIGKILL of the {part}")


def compose(environment: dict[str, str], folder: Path) -> None:
    """Start the rendered file by Compose, ask, and stop it."""
    program = shutil.which(
        "docker-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if program is None:
        sys.exit("docker-compose is not installed: pip install '.[dev]'")
    port = unused_port()
    words = ("render", "compose", "-w", "demo", "--engine", "cpu", "-p", str(port))
    subprocess.run(launcher(*words, "--to", f"{folder}/"), env=environment, check=True)
    file = ("--file", str(folder / "compose.yaml"))
    try:
        subprocess.run([program, *file, "up", "--detach"], env=environment, check=True)

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return "Paris" in ask(port)
            return False

        wait_for(answers, "compose: an answer", _START_SECONDS)
    finally:
        subprocess.run([program, *file, "down"], env=environment, check=True)
    if podman("ps", "--all", "--quiet"):
        sys.exit("compose: a container remains")
    print("compose: up, answered, down, no container remains", flush=True)


@contextlib.contextmanager
def index_of_stand_ins(folder: Path) -> Iterator[str]:
    """Serve small wheels with the names of the real ones; yield the address."""
    stand_in_index(folder)
    handler = partial(QuietFiles, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class QuietFiles(SimpleHTTPRequestHandler):
    """Files of a folder; counts the requests for wheels."""

    wheels = 0

    def log_message(self, format: str, *args: object) -> None:
        """Count instead of printing."""
        QuietFiles.wheels += self.path.endswith(".whl")


def check_addresses(base: str, environment: Mapping[str, str], folder: Path) -> None:
    """Build an image from an index, and check that nothing names the index.

    Neither files, variables, labels and history of the image may, nor the log of the build.
    """
    kept = f"{IMAGE}-kept"
    had = subprocess.run(["podman", "tag", IMAGE, kept], capture_output=True, check=False)
    plain = {name: value for name, value in environment.items() if not name.startswith("PIP_")}
    plain |= {"XDG_DATA_HOME": str(folder / "data"), "PIP_CONFIG_FILE": os.devnull}
    plain.pop("GAUDI_LAUNCH_ENGINES_DIR", None)
    subprocess.run(["podman", "untag", IMAGE, IMAGE], capture_output=True, check=False)
    with index_of_stand_ins(folder / "index") as address:
        plain["PIP_INDEX_URL"] = f"http://{address}"
        words = ("setup", "cpu", "--in", "podman", "--base-image", base, "--no-demo")
        subprocess.run(launcher(*words), env=plain, check=True)
    made = podman("create", IMAGE)
    content = subprocess.run(["podman", "export", made], capture_output=True, check=True).stdout
    podman("rm", made)
    log = (folder / "data/gaudi-launch/engines/cpu-image/setup.log").read_bytes()
    shown = podman("image", "inspect", IMAGE) + podman("image", "history", "--no-trunc", IMAGE)
    places = {"files": content, "log": log, "configuration": shown.encode()}
    podman("rmi", IMAGE)
    if had.returncode == 0:
        podman("tag", kept, IMAGE)
        podman("untag", kept, kept)
    found = [place for place, text in places.items() if address.encode() in text]
    if found or not QuietFiles.wheels:
        sys.exit(f"the index is named in {found}; {QuietFiles.wheels} wheels were taken from it")
    print(f"{QuietFiles.wheels} wheels from an index that nothing names", flush=True)


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-image", required=True)
    parser.add_argument("--short", action="store_true", help="leave out the kills")
    given = parser.parse_args()
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as temporary:
        check_addresses(given.base_image, environment, Path(temporary))
    words = ("setup", "cpu", "--in", "podman", "--base-image", given.base_image)
    subprocess.run(launcher(*words), env=environment, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = folder / "podman.sock"
        with subprocess.Popen(
            ["podman", "system", "service", "--time=0", f"unix://{place}"]
        ) as api:
            try:
                wait_for(place.exists, "podman's socket", _END_SECONDS)
                by_socket = {**environment, "DOCKER_HOST": f"unix://{place}"}
                serve("podman", environment)
                serve("docker", by_socket)
                for part in () if given.short else ("engine", "client", "launcher"):
                    kill(part, environment)
                compose(by_socket, folder / "compose")
            finally:
                api.terminate()
    print("passed")


if __name__ == "__main__":
    main()
