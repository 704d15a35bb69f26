"""vLLM itself over two hosts by Ray: one model, half of it on each, on the CPU.

vLLM's CPU platform asks Ray for nothing and so refuses it; a plug-in of a few lines (cpu_on_ray)
gives it the resource that the Gaudi fork asks for. All else is the real thing: the executor, its
workers on both hosts, gloo between them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.e2e.two_hosts import Wire

pytestmark = [pytest.mark.root, pytest.mark.e2e]

PLUGIN = Path(__file__).parent / "cpu_on_ray"


def test_one_model_over_two_hosts(
    wire: Wire, engine: Path, tiny_model: Path, ray_python: Path
) -> None:
    wire.python = engine
    site = wire.folder / "site"
    shutil.rmtree(site)
    shutil.copytree(PLUGIN, site)
    metadata = site / "cpu_on_ray-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cpu-on-ray\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[vllm.platform_plugins]\ncpu_on_ray = cpu_on_ray:register\n"
    )
    # Ray from the tests' environment, behind everything that the engine's own has
    version = "python{}.{}".format(*embedded_version(engine))
    packages = ray_python.parents[1] / "lib" / version / "site-packages"
    if not packages.is_dir():
        pytest.skip(f"Ray was not installed for {version}")
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(packages)!r})\n")
    shutil.copytree(tiny_model, wire.folder / "a" / "disk" / "Tiny")
    words = ["-w", str(wire.folder / "models" / "Tiny"), "--engine", "cpu", "-n", "1"]
    inventory = str(wire.inventory())
    refused = wire.launch("plan", *words, "--inventory", inventory)
    assert (refused.returncode, "no Ray executor" in refused.stderr) == (2, True)
    done = wire.launch(
        "up", *words, "--force", "--inventory", inventory, "--wait", "600", "--json", seconds=700
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["layout"]["tensor"], shown["layout"]["hosts"]) == (2, 2)
    asked = {"model": "Tiny", "prompt": "hello", "max_tokens": 8, "temperature": 0}
    answer = wire.get("/v1/completions", asked)
    assert answer["usage"]["completion_tokens"] == 8
    # a worker of the engine on each host
    for host in "ab":
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in wire.pids(host)]
        assert any(command.startswith(b"ray::RayWorker") for command in commands), commands
    assert wire.launch("status").returncode == 0
    assert wire.launch("down").returncode == 0
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def embedded_version(python: Path) -> tuple[str, str]:
    """Major and minor of an environment's Python, from its own record."""
    assert EMBEDDED.is_ready()
    lines = (python.parents[1] / "pyvenv.cfg").read_text().splitlines()
    words = dict(line.split(" = ", 1) for line in lines if " = " in line)
    major, minor = words["version"].split(".")[:2]
    return major, minor
