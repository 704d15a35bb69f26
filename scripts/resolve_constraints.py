"""Resolve the constraints file of a release of vllm-gaudi.

Reads the release's commit, date and vLLM from profiles/engines/support, its requirements from a
checkout (`--source`), and those of vLLM from the metadata of its wheel, by pip. uv resolves both
together for the packages that existed on the day of the commit, and the result goes to
profiles/engines/constraints. PyTorch, CUDA and what no package index has are left out: they come
with Gaudi's software. Exit status 1, and uv's reason, where the requirements contradict each other.

    python scripts/resolve_constraints.py 0.24.0 --source ~/vllm-gaudi --torch 2.11.0 --uv
    ~/uv/bin/uv
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ENGINES = Path(__file__).resolve().parents[1] / "profiles" / "engines"
PYTHON = "3.10"
_SECONDS = 600
# PyTorch and CUDA's packages come with Gaudi's software, or are of no use there
_OF_CUDA = re.compile(
    r"^(torch|torchvision|torchaudio|torchcodec|triton|xformers|flashinfer-.*|nvidia-.*|cuda-.*|pynvvideocodec|nvtx"
    r"|apache-tvm-ffi|tilelang|fastsafetensors|instanttensor|quack-kernels|tokenspeed-.*|humming-kernels)$"
)
# vllm-project/vllm:requirements/cuda.txt has its own lines of these; the plugin's count here
_OF_PLUGIN = ("numba", "ray")
_NOT_EMITTED = ("torch", "torchvision", "torchaudio", "torchcodec", "triton", "setuptools")
_HEAD = """\
# vllm-gaudi {version}: versions that pip takes with it. Resolved with uv {uv} on {today} for Python {python} and
# newer, from the packages that existed on {date}, the day of the engine's commit.
# Requirements: vLLM {upstream} (its wheel's metadata without the CUDA packages), and
# vllm-project/vllm-gaudi@{commit}:requirements.txt{ray}.{also}
# Not resolved here: what no package index has. PyTorch for Gaudi ({torch}), habana-torch-plugin, the engine itself,
# vllm-hpu-extension and neural-compressor-pt come from Gaudi's software or from git; torch, triton, setuptools and
# CUDA packages are therefore left out. Not tried: an installation on a server with cards.
"""  # noqa: E501


def run(*words: str) -> str:
    """Return what a command prints. Raises CalledProcessError."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=_SECONDS)
    return done.stdout


def facts_of(version: str) -> dict[str, Any]:
    """Return the facts of a release: commit, date, the vLLM under it."""
    found: dict[str, Any] = json.loads(
        (ENGINES / "support" / f"vllm-gaudi-{version}.json").read_text("utf-8")
    )
    return found


def name_of(requirement: str) -> str:
    """Return the package of a requirement, in the form of the index."""
    return re.split(r"[\s<>=!~;\[(]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def wheel_requirements(version: str) -> list[str]:
    """Return what vLLM's wheel needs, without extras, PyTorch and CUDA."""
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--no-deps",
        "--ignore-installed",
    )
    report = json.loads(run(*pip, "--only-binary", ":all:", "--report", "-", f"vllm=={version}"))
    (wheel,) = report["install"]
    needs = wheel["metadata"].get("requires_dist", [])
    names = [(name_of(line), line) for line in needs if "extra ==" not in line]
    return [line for name, line in names if name not in _OF_PLUGIN and not _OF_CUDA.match(name)]


def plugin_requirements(source: str, commit: str) -> list[str]:
    """Return the lines of the plugin's requirements at a commit."""
    lines = run("git", "-C", source, "show", f"{commit}:requirements.txt").splitlines()
    needs = [line.partition("#")[0].strip() for line in lines]
    return [
        line for line in needs if line and name_of(line) not in ("setuptools", "setuptools-scm")
    ]


def resolve(needs: list[str], options: argparse.Namespace, date: str) -> str:
    """Return the resolved versions. Raises CalledProcessError where there are none."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, fixed = Path(folder, "requirements.in"), Path(folder, "torch.txt")
        wanted.write_text("\n".join(needs) + "\n", encoding="utf-8")
        fixed.write_text(f"torch=={options.torch}\n", encoding="utf-8")
        end = datetime.date.fromisoformat(date) + datetime.timedelta(days=1)
        without = [word for name in _NOT_EMITTED for word in ("--no-emit-package", name)]
        form = ("--universal", "--no-header", "--no-annotate", "--quiet")
        limits = (
            "--python-version",
            PYTHON,
            "--exclude-newer",
            f"{end}T00:00:00Z",
            "--constraint",
            str(fixed),
        )
        return run(options.uv, "pip", "compile", *form, *limits, *without, str(wanted))


def constraints(resolved: str) -> list[str]:
    """Return the lines of the file: versions for Linux, no address, nothing of CUDA."""
    lines = [line.strip() for line in resolved.splitlines() if "==" in line]
    lines = [line for line in lines if not line.endswith("; sys_platform == 'win32'")]
    return [line for line in lines if not re.match(r"(nvidia|cuda)-", name_of(line))]


def main() -> int:
    """Write one file; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("version", help="a release in profiles/engines/support, such as 0.24.0")
    parser.add_argument("--source", required=True, help="a checkout of vllm-project/vllm-gaudi")
    parser.add_argument(
        "--torch", required=True, help="the PyTorch of the Gaudi software that it is made for"
    )
    parser.add_argument("--also", default="", help="one more requirement, such as 'fastapi<0.137'")
    parser.add_argument("--why", default="", help="the source of --also")
    parser.add_argument("--uv", default="uv", help="the program uv")
    options = parser.parse_args()
    facts = facts_of(options.version)
    upstream = facts["upstream"]["version"]
    plugin = plugin_requirements(options.source, facts["commit"])
    has_ray = any(name_of(line) == "ray" for line in plugin)
    needs = [*wheel_requirements(upstream), *plugin, *([] if has_ray else ["ray"])]
    also = f"\n# Also: {options.also} ({options.why})." if options.also else ""
    needs += [options.also] if options.also else []
    try:
        resolved = resolve(needs, options, facts["date"])
    except subprocess.CalledProcessError:
        return 1
    head = _HEAD.format(
        version=options.version,
        uv=run(options.uv, "--version").split()[1],
        today=datetime.datetime.now(datetime.timezone.utc).date(),
        python=PYTHON,
        date=facts["date"],
        upstream=upstream,
        commit=facts["commit"][:8],
        ray="" if has_ray else ", ray",
        torch=options.torch,
        also=also,
    )
    lines = constraints(resolved)
    file = ENGINES / "constraints" / f"vllm-gaudi-{options.version}.txt"
    file.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{file}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
