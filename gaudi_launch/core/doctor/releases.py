"""Tested combinations of software, from ``profiles/releases.yaml``.

Keys are (major, minor); PyTorch's also (major, minor, patch) where a patch release brought another
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.doctor.findings import release_of

Version = tuple[int, int]
Patch = tuple[int, int, int]


@dataclass(frozen=True)
class FirmwarePair:
    """A range of preboot firmware that does not start with a range of boot images.

    Firmware (SPI) from a release on, images (FIT) up to a release.
    """

    products: tuple[str, ...]
    spi_from: Patch
    fit_to: Patch
    source: str

    def covers(self, spi: str | None, fit: str | None) -> bool:
        """Return True for versions that are in both ranges."""
        found_spi, found_fit = patch_of(spi), patch_of(fit)
        if found_spi is None or found_fit is None:
            return False
        return found_spi >= self.spi_from and found_fit <= self.fit_to


@dataclass(frozen=True)
class PythonPackage:
    """A Python package of Gaudi's PyTorch environment.

    ``names`` are the names that it has or had, ``modules`` what it gives to import. Without a
    ``needed`` one no card can be used.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    needed: bool = False


@dataclass(frozen=True)
class Releases:
    """The tables of the file.

    ``kernels``: oldest kernel by distribution (``ubuntu-22.04``) by release. ``bad_pairs``: source
    by (user space, driver). ``packages``: those of a host, ``container_packages`` those of a host
    whose engines run in containers.
    ``builds``: the build number in the version of a release's packages.
    """

    torch: Mapping[tuple[int, ...], Version]
    kernels: Mapping[Version, Mapping[str, Version]]
    oldest_kernel: Version
    plugin: Mapping[Version, tuple[Version, ...]]
    fork: Mapping[Version, tuple[Version, ...]]
    optimum: Mapping[Version, tuple[Version, ...]]
    bad_pairs: Mapping[tuple[Version, Version], str]
    packages: tuple[str, ...]
    container_packages: tuple[str, ...]
    firmware_pairs: tuple[FirmwarePair, ...]
    builds: Mapping[str, str] = field(default_factory=dict)
    python_packages: tuple[PythonPackage, ...] = ()

    @property
    def newest(self) -> Version:
        newest = max(self.torch)
        return newest[0], newest[1]

    @property
    def newest_build(self) -> tuple[str, str]:
        """Return the newest release with a known build, and that build."""
        release = max(self.builds, key=lambda each: tuple(map(int, each.split("."))))
        return release, self.builds[release]

    def torch_of(self, software: str) -> tuple[Version, ...]:
        """Return the PyTorch versions of a release; none where its patch has no line.

        Several where the patch is not given and they differ. A line without a patch is that of the
        first one (1.24 is 1.24.0): what a later patch brought is not known from it.
        """
        patch, release = patch_of(software), release_of(software)
        if release is None:
            return ()
        if patch is not None:
            known = self.torch.get(patch)
            if known is None and patch[2] == 0:
                known = self.torch.get(release)
            return () if known is None else (known,)
        return tuple(sorted({torch for known, torch in self.torch.items() if known[:2] == release}))

    def optimum_for(self, software: Version) -> Version:
        """Return the newest optimum-habana of a Gaudi release, else the newest of all."""
        fitting = [each for each, tested in self.optimum.items() if software in tested]
        return max(fitting or self.optimum)

    @property
    def distributions(self) -> frozenset[str]:
        return frozenset(name for kernels in self.kernels.values() for name in kernels)


@cache
def releases() -> Releases:
    """Return the table as shipped."""
    document: dict[str, Any] = shipped("releases.yaml")
    table = document["releases"]
    return Releases(
        torch={patch_of(r) or _version(r): _version(entry["torch"]) for r, entry in table.items()},
        kernels={
            _version(r): {name: _version(kernel) for name, kernel in entry["kernels"].items()}
            for r, entry in table.items()
            if "kernels" in entry
        },
        oldest_kernel=_version(document["oldest_kernel"]),
        plugin=_tested(document["plugin"]),
        fork=_tested(document["fork"]),
        optimum=_tested(document["optimum"]),
        bad_pairs={
            (_version(pair["user_space"]), _version(pair["driver"])): pair["source"]
            for pair in document["bad_pairs"]
        },
        packages=tuple(document["packages"]["host"]),
        container_packages=tuple(document["packages"]["containers"]),
        firmware_pairs=tuple(_firmware_pair(pair) for pair in document["firmware_pairs"]),
        builds=dict(document["builds"]),
        python_packages=tuple(
            PythonPackage(tuple(row["names"]), tuple(row["modules"]), bool(row.get("needed")))
            for row in document["python_packages"]
        ),
    )


def _tested(table: Mapping[str, Sequence[str]]) -> Mapping[Version, tuple[Version, ...]]:
    return {_version(version): tuple(map(_version, known)) for version, known in table.items()}


def _firmware_pair(pair: Mapping[str, Any]) -> FirmwarePair:
    spi, fit = patch_of(pair["spi_from"]), patch_of(pair["fit_to"])
    if spi is None or fit is None:
        raise ValueError(f"not versions of three numbers: {pair}")
    return FirmwarePair(tuple(pair["products"]), spi, fit, pair["source"])


def patch_of(text: str | None) -> Patch | None:
    """Return the first version of three numbers in a text.

    ``1.24.1.482`` is (1, 24, 1).
    """
    match = re.search(r"(?<![\d.])(\d{1,4})\.(\d{1,4})\.(\d{1,4})", text or "")
    if not match:
        return None
    return (int(match[1]), int(match[2]), int(match[3]))


def _version(text: str) -> Version:
    found = release_of(text)
    if found is None:
        raise ValueError(f"not a version: {text}")
    return found
