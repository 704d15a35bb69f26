"""Real podman with runc: a separate store, a small image, and no registry.

The image has this machine's Debian Python and the trivial engine under the name of vLLM's server.
Tests that need it are skipped, with the reason, where podman cannot run a container.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from tests.support.places import SUPPORT

IMAGE = "localhost/gaudi-launch-trivial:1"
# as images of engines for Gaudi cards are
IMAGE_OF_ROOT = "localhost/gaudi-launch-trivial-root:1"
PYTHON = Path("/usr/bin/python3")
_LISTINGS = 5
_MODES = {"tmp": 0o1777, "var/tmp": 0o1777}
_ENGINE = "usr/lib/python3/dist-packages/vllm/entrypoints/openai/api_server.py"
# rootful podman in a container without CAP_SYS_RESOURCE: no limit above its own, no crun on hybrid
# control groups
_CONF = """[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def settings(folder: Path) -> dict[str, str]:
    """Return the variables of a podman with a store in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    conf, storage = folder / "containers.conf", folder / "storage.conf"
    conf.write_text(_CONF)
    storage.write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/store"\n'
    )
    return {"CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage)}


def podman(variables: dict[str, str], *words: str, given: bytes | None = None) -> str:
    """Run podman and return its output."""
    done = _run(variables, *words, given=given)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def containers(variables: dict[str, str]) -> list[str]:
    """Return the names of all containers of this store.

    podman fails where one is removed while it reads its files (containers/podman, pkg/ps/ps.go:
    only a container that is gone before is left out); it is then called again.
    """
    for _ in range(_LISTINGS):
        done = _run(variables, "ps", "--all", "--format", "{{.Names}}")
        if done.returncode == 0:
            return done.stdout.decode().split()
    raise AssertionError(done.stderr.decode())


def _run(
    variables: dict[str, str], *words: str, given: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["podman", *words],
        env={**os.environ, **variables},
        input=given,
        capture_output=True,
        check=False,
        timeout=120,
    )


def make_images(variables: dict[str, str]) -> None:
    """Import the small image with a user without rights, and with root as user."""
    archive = _archive()
    for image, user in ((IMAGE, "65532:65532"), (IMAGE_OF_ROOT, "0:0")):
        changes = [f"USER {user}", "ENV HOME=/tmp", "ENV PATH=/usr/bin"]
        options = [word for change in changes for word in ("--change", change)]
        podman(variables, "import", "--quiet", *options, "-", image, given=archive)


@cache
def why_not() -> str:
    """Return why no container can be run here; "" where one can be."""
    missing = [name for name in ("podman", "runc", "ldd") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not PYTHON.exists():
        return "no Python of the distribution for the image"
    return ""


def remove_containers(variables: dict[str, str]) -> bool:
    """Remove all containers of this store; return whether none is left."""
    _run(variables, "rm", "--all", "--force", "--time=0")
    return not containers(variables)


def remove(folder: Path, variables: dict[str, str]) -> None:
    """Remove all containers of this store, and its mounts."""
    remove_containers(variables)
    subprocess.run(["umount", f"{folder}/store/overlay"], capture_output=True, check=False)


def _archive() -> bytes:
    """Return the tar of the image's files."""
    program = PYTHON.resolve()
    library = Path("/usr/lib") / program.name
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for folder in ("tmp", "dev", "proc", "sys", "etc", "root", "run", "var/tmp", "bin"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, _MODES.get(folder, 0o755)
            archive.addfile(entry)
        archive.add(program, f"usr/bin/{program.name}")
        archive.add(_link(program.name), "usr/bin/python3")
        for file in _files(library):
            archive.add(file.resolve(), str(file).lstrip("/"), recursive=False)
        for file in _shared([program, *library.glob("lib-dynload/*.so")]):
            archive.add(file.resolve(), str(file).lstrip("/"))
        for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai"):
            archive.addfile(tarfile.TarInfo(f"usr/lib/python3/dist-packages/{package}/__init__.py"))
        archive.add(SUPPORT / "trivial_engine.py", _ENGINE)
    return out.getvalue()


def _link(name: str) -> Path:
    return PYTHON if PYTHON.is_symlink() else Path("/usr/bin") / name


def _files(library: Path) -> list[Path]:
    """Return the modules of the standard library that a server needs."""
    found = []
    for file in library.rglob("*"):
        parts = file.relative_to(library).parts
        unneeded = {
            "__pycache__",
            "test",
            "idlelib",
            "tkinter",
            "ensurepip",
            "lib2to3",
            "pydoc_data",
        }
        if file.is_file() and not unneeded & set(parts) and not parts[0].startswith("config-"):
            found.append(file)
    return found


def _shared(programs: list[Path]) -> list[Path]:
    """Return the shared libraries of programs, by ldd."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    words = {word for line in done.stdout.splitlines() for word in line.split()}
    return sorted(Path(word) for word in words if word.startswith("/") and not word.endswith(":"))
