"""Sources of an engine's code and images: the pinned facts of profiles/engines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import shipped_json
from gaudi_launch.core.planning.profiles import read_document

# in the name of an image of the bare framework, without a serving engine (the Gaudi2E inference
# manual 1.21, 1.4, installs vLLM into one)
_BARE = "installer-"


@dataclass(frozen=True)
class Code:
    """A repository at a commit; ``address`` is what git clones."""

    repository: str
    branch: str = ""
    commit: str = ""

    @property
    def address(self) -> str:
        return f"https://github.com/{self.repository}.git"


@dataclass(frozen=True)
class Release:
    """One engine at one version, as in profiles/engines.

    ``engine`` is its value of --engine, ``images`` its makers' images, newest first, ``release``
    the Gaudi software it is made for, ``upstream`` the vLLM that loads a plugin, whose file of
    build requirements is ``build_requirements``.
    """

    engine: str
    version: str
    code: Code
    extension: Code | None = None
    upstream: Code | None = None
    release: str = ""
    images: tuple[str, ...] = ()
    entry: str = ""
    build_requirements: str = "requirements/build/cuda.txt"

    @property
    def bare_image(self) -> str | None:
        """Return the published image that has the Gaudi software but not the engine.

        Return None where there is none.
        """
        return next((image for image in self.images if _BARE in image), None)

    @property
    def whole_image(self) -> str | None:
        """Return the published image that has the engine inside.

        Return None where there is none.
        """
        return next((image for image in self.images if _BARE not in image), None)

    @property
    def built_image(self) -> str:
        """Return the name of the image that is built: engine, version and commit."""
        name = self.engine.partition("@")[0].replace("_", "-")
        return f"gaudi-launch/{name}:{self.version.replace('_', '-')}-{self.code.commit or 'main'}"

    @property
    def scale_out_image(self) -> str:
        """Return the name of the built image with libfabric and the HCCL wrapper.

        It is that of `setup --scale-out`.
        """
        return f"{self.built_image}-scale-out"

    @property
    def image(self) -> str | None:
        """Return the image that serves this engine: the published or the built one."""
        return self.whole_image or (self.built_image if self.bare_image else None)


def known() -> tuple[str, ...]:
    """Return every engine with a profile, by its name for --engine."""
    files = sorted((paths.profiles_dir() / "engines").glob("*.yaml"))
    return tuple(str(read_document(file)["name"]) for file in files)


def release_of(engine: str, version: str = "") -> Release | None:
    """Return the release of an engine by its name for --engine.

    Its newest where ``version`` is not known to the profile.

    Return None for an engine without a profile (the embedded CPU engine).
    """
    path = paths.profiles_dir() / "engines" / (engine.replace("@", "-") + ".yaml")
    if not path.is_file():
        return None
    versions = read_document(path)["versions"]
    found = next((entry for entry in versions if entry["version"] == version), versions[0])
    extension, upstream = found.get("extension"), found.get("upstream")
    return Release(
        engine=engine,
        version=str(found["version"]),
        code=_code(found),
        extension=_code(extension) if extension else None,
        upstream=_code(upstream) if upstream else None,
        release=str(found["release"] or ""),
        images=tuple(found["images"]),
        entry=str(found.get("entry", "")),
        build_requirements=str((upstream or {}).get("requirements", Release.build_requirements)),
    )


def constraints_of(release: Release) -> str | None:
    """Return the file of the versions that pip takes with a release.

    Its head says how they were resolved and what was not. Return None where there is no file.
    """
    name = release.engine.partition("@")[0]
    names = {name, f"{name}-{release.version}"}
    folder = paths.profiles_dir() / "engines" / "constraints"
    found = [folder / f"{each}.txt" for each in sorted(names) if (folder / f"{each}.txt").is_file()]
    return str(found[0]) if found else None


@dataclass(frozen=True)
class PinTrial:
    """The trial installation of a constraints file: packages installed and imported.

    ``left_out`` are packages that it needs and no index has.
    """

    date: str
    python: str
    installed: int
    imported: int
    left_out: tuple[str, ...]


def trial_of(constraints: str) -> PinTrial | None:
    """Return the trial of a constraints file.

    Return None where exactly this file was not tried. Trials are made by
    ``scripts/acceptance/pinned_installs.py``.
    """
    file = Path(constraints)
    found = _record("tried").get(file.stem)
    if found is None or hashlib.sha256(file.read_bytes()).hexdigest() != found["sha256"]:
        return None
    return PinTrial(
        str(found["date"]),
        str(found["python"]),
        int(found["installed"]),
        int(found["imported"]),
        tuple(sorted({*found["not_installed"], *found["not_imported"]})),
    )


_UNRESOLVED = {
    "conflict": "setup.unresolved_conflict",
    "moving": "setup.unresolved_moving",
}


def no_constraints(release: Release) -> Message | None:
    """Return why a release has no constraints file; None where no reason is recorded."""
    found = _record("unresolved").get(f"{release.engine.partition('@')[0]}-{release.version}")
    if found is None:
        return None
    return message(_UNRESOLVED[found["reason"]], **found["values"])


def check_installable(name: str) -> None:
    """Raise LaunchError (USAGE) for a release that cannot be installed, with why."""
    found = _record("unresolved").get(name)
    if found is not None and found["reason"] == "moving":
        raise LaunchError(_UNRESOLVED["moving"], ExitCode.USAGE, **found["values"])


@cache
def _record(part: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = shipped_json("engines", "constraints", "record.json")[part]
    return found


def versions_known(name: str) -> tuple[str, ...]:
    """Return the versions of an engine that can be set up, as values of ``--engine``."""
    found = versions_of(name)
    if len(found) > 1:
        return tuple(f"{name}@{version}" for version in found)
    return ()


def versions_of(name: str) -> tuple[str, ...]:
    path = paths.profiles_dir() / "engines" / f"{name}.yaml"
    if not path.is_file():
        return ()
    return tuple(str(entry["version"]) for entry in read_document(path)["versions"])


def _code(entry: Mapping[str, Any]) -> Code:
    return Code(
        str(entry["repository"]), str(entry.get("branch", "")), str(entry.get("commit", ""))
    )
