"""scripts/Containerfile, built by podman on a base of this machine's files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from tests.support import real_podman
from tests.support.places import TOP

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(real_podman.why_not()), reason=real_podman.why_not()),
]
NAME, BASE = "localhost/gaudi-launch:1", "localhost/base:1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[dict[str, str]]:
    folder = tmp_path / "podman"
    variables = real_podman.settings(folder)
    yield variables
    real_podman.remove(folder, variables)


def test_the_image_runs_the_command(store: dict[str, str], tmp_path: Path) -> None:
    index = tmp_path / "dist" / "index"
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(index), str(TOP)]
    subprocess.run([real_podman.PYTHON, Path(pip.__file__).parent, *words], check=True)
    real_podman.make_images(store)
    base = tmp_path / "base"
    base.mkdir()
    shutil.copytree(Path(pip.__file__).parent, base / "pip")
    # numpy's own need of the system
    for name in ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"):
        shutil.copy(Path("/usr/lib/x86_64-linux-gnu", name), base)
    (base / "Containerfile").write_text(
        f"FROM {real_podman.IMAGE_OF_ROOT}\n"
        "COPY pip /usr/lib/python3/dist-packages/pip\n"
        "COPY lib* /usr/lib/x86_64-linux-gnu/\n"
    )
    real_podman.podman(store, "build", "--quiet", "--tag", BASE, str(base))
    file = str(TOP / "scripts" / "Containerfile")
    words = ["--build-arg", f"BASE={BASE}", "--tag", NAME, str(index.parent)]
    real_podman.podman(store, "build", "--quiet", "--network=none", "--file", file, *words)
    plan = ["plan", "Qwen/Qwen3-8B", "-n", "1", "--machine", "simulated:hls2"]
    shown = real_podman.podman(store, "run", "--rm", NAME, *plan)
    assert shown.startswith("Qwen3-8B fits on 1 card.")
