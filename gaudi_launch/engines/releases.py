"""Where an engine's code and images come from: the pinned facts of profiles/engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch import paths
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.profiles import read_document

# in the name of an image of the bare framework, without a serving engine (the Gaudi2E inference manual 1.21, 1.4,
# installs vLLM into one)
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
    """One engine at one version, as profiles/engines has it. ``engine`` is the word of --engine, ``images`` what
    its makers publish, newest first, ``release`` the Gaudi software it is made for, ``upstream`` the vLLM that a
    plugin is loaded by."""

    engine: str
    version: str
    code: Code
    extension: Code | None = None
    upstream: Code | None = None
    release: str = ""
    images: tuple[str, ...] = ()
    entry: str = ""

    @property
    def bare_image(self) -> str | None:
        """The published image that has the Gaudi software but not the engine; None where there is none."""
        return next((image for image in self.images if _BARE in image), None)

    @property
    def whole_image(self) -> str | None:
        """The published image that has the engine inside; None where there is none."""
        return next((image for image in self.images if _BARE not in image), None)

    @property
    def built_image(self) -> str:
        """The name of the image that is built on the bare one: engine, version and commit."""
        name = self.engine.partition("@")[0].replace("_", "-")
        return f"gaudi-launch/{name}:{self.version.replace('_', '-')}-{self.code.commit or 'main'}"

    @property
    def scale_out_image(self) -> str:
        """The name of the built image that also has libfabric and the HCCL wrapper (`setup --scale-out`)."""
        return f"{self.built_image}-scale-out"

    @property
    def image(self) -> str | None:
        """The image that serves this engine: the published one, else the one that is built."""
        return self.whole_image or (self.built_image if self.bare_image else None)


def known() -> tuple[str, ...]:
    """Every engine with a profile, by its name for --engine."""
    files = sorted((paths.profiles_dir() / "engines").glob("*.yaml"))
    return tuple(str(read_document(file)["name"]) for file in files)


def release_of(engine: str, version: str = "") -> Release | None:
    """The release of an engine by its name for --engine; its newest where ``version`` is not known to the profile.

    None for an engine without a profile (the embedded CPU engine).
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
    )


def needed_release(engine: str) -> Release:
    """As `release_of`, also for ``tgi@3.3.7``: an engine that is an image knows its own. Raises LaunchError (USAGE)
    for an engine without a profile."""
    name, _, version = engine.partition("@")
    found = release_of(engine) or (release_of(name, version) if version else None)
    if found is not None and found.engine != engine:
        from gaudi_launch.engines.registry import find

        image = find(engine).image
        found = replace(found, engine=engine, version=version, images=(image,)) if image else None
    if found is None:
        from gaudi_launch.engines.registry import setup_names

        all_known = ", ".join((*setup_names(), *known()))
        raise LaunchError("serve.setup_unknown", ExitCode.USAGE, found=engine, known=all_known)
    return found


def _code(entry: Mapping[str, Any]) -> Code:
    return Code(str(entry["repository"]), str(entry.get("branch", "")), str(entry.get("commit", "")))
