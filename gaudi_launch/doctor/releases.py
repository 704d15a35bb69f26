"""Which software goes with which, from ``profiles/releases.yaml``. Keys are (major, minor)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gaudi_launch import paths
from gaudi_launch.doctor.records import release_of

Version = tuple[int, int]


@dataclass(frozen=True)
class Releases:
    """``kernels``: oldest kernel by distribution (``ubuntu-22.04``) by release. ``bad_pairs``: source by
    (user space, driver)."""

    torch: Mapping[Version, Version]
    kernels: Mapping[Version, Mapping[str, Version]]
    oldest_kernel: Version
    plugin: Mapping[Version, tuple[Version, ...]]
    fork: Mapping[Version, tuple[Version, ...]]
    bad_pairs: Mapping[tuple[Version, Version], str]

    @property
    def newest(self) -> Version:
        return max(self.torch)

    @property
    def distributions(self) -> frozenset[str]:
        return frozenset(name for kernels in self.kernels.values() for name in kernels)


@cache
def releases() -> Releases:
    """The table as shipped."""
    import yaml

    document: dict[str, Any] = yaml.safe_load((paths.profiles_dir() / "releases.yaml").read_text(encoding="utf-8"))
    table = document["releases"]
    return Releases(
        torch={_version(r): _version(entry["torch"]) for r, entry in table.items()},
        kernels={
            _version(r): {name: _version(kernel) for name, kernel in entry["kernels"].items()}
            for r, entry in table.items()
        },
        oldest_kernel=_version(document["oldest_kernel"]),
        plugin={_version(v): tuple(map(_version, known)) for v, known in document["plugin"].items()},
        fork={_version(v): tuple(map(_version, known)) for v, known in document["fork"].items()},
        bad_pairs={
            (_version(pair["user_space"]), _version(pair["driver"])): pair["source"]
            for pair in document["bad_pairs"]
        },
    )


def _version(text: str) -> Version:
    found = release_of(text)
    if found is None:
        raise ValueError(f"not a version: {text}")
    return found
