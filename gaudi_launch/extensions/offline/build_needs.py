"""Requirements to build a repository, by the text of its files. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# docs: pip, "VCS Support": a repository in a requirement
_REPOSITORY = re.compile(
    r"git\+https://github\.com/([\w.-]+/[\w-][\w.-]*?)(?:\.git)?(?=[@#\s\"']|$)"
)
# docs: pyproject.toml specification, "[build-system]"
_BUILD = re.compile(r"^\[build-system\]\s*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_REQUIRES = re.compile(r"^requires\s*=\s*\[(.*?)\]\s*$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'")


def build_requirements(texts: Mapping[str, str]) -> list[str]:
    """Return the requirements to build, by the names and texts of files.

    ``pyproject.toml`` has them in [build-system]; any other file is one of requirements, whose
    PyTorch is left out as in `setup`.
    """
    found: list[str] = []
    for name, text in texts.items():
        if name == "pyproject.toml":
            found += _of_pyproject(text)
        else:
            lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
            found += [each for each in lines if each and not each.startswith(("#", "-", "torch"))]
    return found


def repositories(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the repositories of GitHub that requirements name, as owner/name."""
    found: dict[str, None] = {}
    for text in texts:
        for line in text.splitlines():
            if not line.lstrip().startswith("#"):
                found |= dict.fromkeys(_REPOSITORY.findall(line))
    return tuple(found)


def _of_pyproject(text: str) -> list[str]:
    # tomllib is in Python 3.11 and newer only
    section = _BUILD.search(text)
    requires = _REQUIRES.search(section[1]) if section is not None else None
    if requires is None:
        return ["setuptools", "wheel"]
    lines = [line.partition("#")[0] for line in requires[1].splitlines()]
    return [double or single for double, single in _QUOTED.findall("\n".join(lines))]
