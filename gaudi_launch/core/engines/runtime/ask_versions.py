"""Runs inside the engine's interpreter: report packages that deviate.

Started with ``-c`` and this file's text; stdin is an object of package names with the versions
that are expected. Only the standard library here. Writes one line, MARK and a JSON object.
"""

import importlib.metadata
import json
import sys
from typing import Any

MARK = "gaudi-launch-answer:"


def plain(version: str) -> str:
    """Return a version without its local part and trailing zeros."""
    public = version.partition("+")[0].strip().lower()
    while public.endswith(".0"):
        public = public[:-2]
    return public


def modules(found: Any) -> list[str]:
    """Return the importable names of a distribution, by the list of its files."""
    names = set()
    for path in found.files or ():
        first = str(path).replace("\\", "/").split("/")[0]
        if first.endswith((".dist-info", ".egg-info", ".data", ".pth")) or first in (
            "..",
            "__pycache__",
        ):
            continue
        names.add(first.split(".")[0])
    return sorted(names)


def other(name: str, expected: list[str]) -> dict[str, Any]:
    """Return the version and the modules of a package that is not as expected."""
    try:
        found = importlib.metadata.distribution(name)
        version = found.version or ""
        if not version or plain(version) in [plain(each) for each in expected]:
            return {}
        return {"version": version, "modules": modules(found)}
    except Exception:
        # absent, or its metadata is broken
        return {}


def report(expected: dict[str, list[str]]) -> dict[str, Any]:
    """Return the packages with another version."""
    found = {name: other(name, versions) for name, versions in expected.items()}
    return {name: answer for name, answer in found.items() if answer}


if __name__ == "__main__":
    print(MARK + json.dumps(report(json.load(sys.stdin))))
