"""The releases that the name of an engine means, with any version."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.members import member
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.entries import ENGINES, INSTALLATIONS, entry
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.releases import (
    Release,
    check_installable,
    known,
    release_of,
    versions_known,
    versions_of,
)


def needed_release(engine: str) -> Release:
    """Return the release as `release_of`, also for ``vllm-gaudi@0.26``.

    Tags such as ``vllm-gaudi@v0.26.0`` and versions such as ``tgi@3.3.7`` too. An engine that is
    an image knows its release. Raises LaunchError (USAGE) for an engine, or a version, without a
    profile.
    """
    engine = engine.replace("@v", "@")
    name, _, version = engine.partition("@")
    found = release_of(engine) or _of_version(name, version) or _of_image(engine)
    if found is None:
        check_installable(f"{name}-{version}")
        all_known = ", ".join((*INSTALLATIONS, *known(), *versions_known(name)))
        raise LaunchError("serve.setup_unknown", ExitCode.USAGE, found=engine, known=all_known)
    return found


def _of_version(name: str, version: str) -> Release | None:
    """Return the release of a profile that ``0.26`` names; None where it has none."""
    parts, all_versions = version.split("."), versions_of(name)
    exact = [each for each in all_versions if each == version]
    for each in (*exact, *all_versions):
        found = None
        if version and each.split(".")[: len(parts)] == parts:
            found = release_of(name, each)
        if found is not None:
            return replace(found, engine=f"{name}@{each}")
    return None


def _of_image(engine: str) -> Release | None:
    """Return the release of a version without a line, whose engine names its image."""
    name, _, version = engine.partition("@")
    found = release_of(name, version) if version else None
    if found is None:
        return None
    check_installable(f"{name}-{version}")
    image = find(engine).image
    if not image:
        return None
    return replace(found, engine=engine, version=version, images=(image,))


def releases_of(name: str) -> tuple[str, ...]:
    """Return the known releases of an engine, the newest first.

    By their names for --engine; empty for an engine that does not take any version.
    """
    found = entry(name)
    if not found.any_version or found.in_container:
        return ()
    family = name.partition("@")[0]
    known = [each for each in versions() if each.engine == family and each.version != "main"]
    return tuple(each.label for each in reversed(known))


def image_versions() -> tuple[Version, ...]:
    """Return the versions of engines that come as images, the oldest first."""
    functions = (
        member(f"gaudi_launch.{each.image_versions}")
        for each in ENGINES.values()
        if each.image_versions
    )
    return tuple(version for function in functions for version in function())
