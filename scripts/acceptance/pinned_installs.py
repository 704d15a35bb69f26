"""Install each constraints file into a new environment, import its packages.

pip (or uv, which is faster) installs every package of a file, without the dependencies that no
package index has (PyTorch for Gaudi, Gaudi's own packages, the engine). Then `pip check` reports
unmet requirements, each package's modules are imported, and an application with vLLM's metrics
answers a request, which some versions of FastAPI prevent (vllm-project/vllm-gaudi#1551). The result
goes to profiles/engines/constraints/record.json, which `setup` and `engines` show. Needs a package
index, about 3 GB of free disk and some minutes for each file.

    python scripts/acceptance/pinned_installs.py                    all files
    python scripts/acceptance/pinned_installs.py vllm-gaudi-0.26.0  some of them
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "engines" / "constraints"
RECORD = FOLDER / "record.json"
_SECONDS = 1200
_MARK = "pinned-installs:"
# runs in the new environment: imports the modules of each package in a process of this file
_IMPORTS = """
import importlib, importlib.metadata, json, sys
imported, failed = [], {}
for name in json.load(sys.stdin):
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        continue
    firsts = {str(path).split("/")[0] for path in found.files or () if str(path).endswith((".py",
                                                                                           ".so"))}
    firsts = {each for each in firsts if not each.endswith(".libs")}
    modules = sorted({each.split(".")[0] for each in firsts} - {"..", "tests", "test", "examples",
                                                                "__pycache__"})
    plain = [each for each in modules if each.isidentifier() and not each.startswith("_")]
    module = name.replace("-", "_")
    try:
        for each in [module] if module in plain else plain[:1]:
            importlib.import_module(each)
        imported.append(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
print("MARK" + json.dumps([imported, failed]))
""".replace("MARK", _MARK)
_METRICS = """
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from prometheus_fastapi_instrumentator import Instrumentator
router = APIRouter()
@router.get("/health")
def health():
    return {}
app = FastAPI()
app.include_router(router)
Instrumentator().instrument(app).expose(app)
client = TestClient(app, raise_server_exceptions=False)
print("MARK" + str([client.get(path).status_code for path in ("/health", "/metrics")]))
""".replace("MARK", _MARK)


def run(*words: str, text_in: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its errors are part of its output."""
    return subprocess.run(
        words,
        input=text_in,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def answer(output: str) -> str:
    """Return the marked line of an output, else its last line."""
    lines = output.strip().splitlines() or [""]
    return next((line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)), lines[-1])


def packages_of(file: Path) -> list[str]:
    """Return the packages of a constraints file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return sorted(
        {line.partition("==")[0] for line in lines if "==" in line and not line.startswith("#")}
    )


def installer(python: str, uv: str | None) -> tuple[str, ...]:
    """Return the command that installs packages into an environment."""
    if uv is None:
        return (python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
    return (uv, "pip", "install", "--python", python)


def try_file(file: Path, uv: str | None) -> dict[str, Any] | None:
    """Return the record of one file.

    Return None, and print the last lines, where it cannot be installed.
    """
    with tempfile.TemporaryDirectory(prefix="pinned-") as folder:
        run(sys.executable, "-m", "venv", folder)
        python = f"{folder}/bin/python"
        pip = (python, "-m", "pip", "--disable-pip-version-check")
        install = (*installer(python, uv), "--quiet", "--no-deps")
        done = run(*install, "--requirement", str(file), "setuptools<80")
        if done.returncode:
            print("\n".join(done.stdout.splitlines()[-15:]))
            return None
        unmet = re.findall(
            r"^\S+ \S+ requires (\S+), which is not installed", run(*pip, "check").stdout, re.M
        )
        wrong = [
            line for line in run(*pip, "check").stdout.splitlines() if " has requirement " in line
        ]
        names = json.dumps(packages_of(file))
        imports = answer(run(python, "-c", _IMPORTS, text_in=names).stdout)
        imported, failed = json.loads(imports)
        version = " ".join(
            run(uv or python, *(() if uv else ("-m", "pip")), "--version").stdout.split()[:2]
        )
        metrics = answer(run(python, "-c", _METRICS).stdout)
        listed = json.loads(run(*pip, "list", "--format", "json").stdout)
        installed = len([each for each in listed if each["name"] not in ("pip", "setuptools")])
    return {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "date": str(datetime.datetime.now(datetime.timezone.utc).date()),
        "python": platform.python_version(),
        "installer": version,
        "machine": platform.machine(),
        "installed": installed,
        "imported": len(imported),
        "not_imported": failed,
        "not_installed": sorted(set(unmet)),
        "conflicts": wrong,
        "metrics": metrics,
    }


def main() -> int:
    """Try the files and record the results; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="files without .txt; all by default")
    parser.add_argument("--uv", help="install with this program instead of pip")
    options = parser.parse_args()
    names = options.names or sorted(file.stem for file in FOLDER.glob("*.txt"))
    status = 0
    for name in names:
        found = try_file(FOLDER / f"{name}.txt", options.uv)
        if found is None:
            print(f"{name}: not installed")
            status = 1
            continue
        document = json.loads(RECORD.read_text(encoding="utf-8"))
        document["tried"] = dict(sorted({**document["tried"], name: found}.items()))
        RECORD.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(
            f"{name}: {found['installed']} installed, {found['imported']} imported, metrics "
            f"{found['metrics']}"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
