"""The pinned sources of each engine: what a name means, and what cannot be installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.known_versions import releases
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import (
    Code,
    PinTrial,
    Release,
    check_installable,
    constraints_of,
    no_constraints,
    release_of,
    trial_of,
)
from tests.support.refusals import failing

CONSTRAINTS = paths.profiles_dir() / "engines" / "constraints"
VAULT = "vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs"
WHOLE = f"{VAULT}/vllm-0.26.0-ptupstream-2.11.0:latest"
BARE = f"{VAULT}/pytorch-upstream-installer-2.11.0:latest"
PLUGIN = Release(
    engine="vllm-gaudi",
    version="0.26.0",
    code=Code("vllm-project/vllm-gaudi", "releases/v0.26.0", "b059f9c9"),
    upstream=Code("vllm-project/vllm", "main", "568afb3a"),
    release="1.24",
    images=(WHOLE, BARE),
    entry="python3 -m vllm.entrypoints.cli.main serve MODEL",
)


OF_PLUGIN = [("vllm-gaudi", each.version) for each in releases("vllm-gaudi") if each.executed]


@pytest.mark.parametrize(
    ("engine", "version"),
    [*OF_PLUGIN, ("vllm-fork@1.21", "1.21"), ("vllm-fork@1.22", "1.22"), ("deepseek_r1", "")],
)
def test_setup_takes_every_repository_at_a_commit(engine: str, version: str) -> None:
    found = release_of(engine, version)
    assert found is not None and found.version.startswith(version)
    parts = [part for part in (found.code, found.upstream, found.extension) if part is not None]
    assert len(parts) == 2 and all(part.commit for part in parts)


def test_the_image_that_serves_is_published_or_built() -> None:
    built = replace(PLUGIN, images=(BARE,), code=Code("a/b"), version="0_1")
    assert (built.whole_image, built.image) == (None, "gaudi-launch/vllm-gaudi:0-1-main")
    assert replace(PLUGIN, images=()).image is None
    fork = release_of("vllm-fork@1.22")
    assert fork is not None and fork.built_image.startswith("gaudi-launch/vllm-fork:")
    deepseek = release_of("deepseek_r1")
    assert deepseek is not None and deepseek.built_image.startswith("gaudi-launch/deepseek-r1:")
    assert deepseek.extension is not None and deepseek.extension.commit


@pytest.mark.parametrize(
    ("name", "engine", "version"),
    [
        ("vllm-gaudi", "vllm-gaudi", "0.26.0"),
        ("vllm-gaudi@0.24", "vllm-gaudi@0.24.0", "0.24.0"),
        ("vllm-gaudi@0.24.0", "vllm-gaudi@0.24.0", "0.24.0"),
        ("vllm-gaudi@main", "vllm-gaudi@main", "main"),
        # a number alone is its newest release; the complete one is exactly that
        ("vllm-gaudi@0.13", "vllm-gaudi@0.13.0.post1", "0.13.0.post1"),
        ("vllm-gaudi@0.13.0", "vllm-gaudi@0.13.0", "0.13.0"),
        ("vllm-gaudi@0.19.1", "vllm-gaudi@0.19.1", "0.19.1"),
        ("vllm-fork@1.21", "vllm-fork@1.21", None),
    ],
)
def test_a_version_is_named_by_its_first_numbers(
    name: str, engine: str, version: str | None
) -> None:
    found = needed_release(name)
    assert found.engine == engine
    assert version is None or found.version == version


def test_a_release_that_moves_cannot_be_installed() -> None:
    with failing("setup.unresolved_moving", ExitCode.USAGE) as caught:
        check_installable("vllm-gaudi-0.10.1")
    assert str(caught.value)
    check_installable("vllm-gaudi-0.26.0")
    # a conflict of packages is stated, and the code can be installed without pins
    check_installable("vllm-gaudi-0.13.0")
    reason = no_constraints(needed_release("vllm-gaudi@0.13.0"))
    assert reason is not None
    assert (reason.id, reason.values["left_range"]) == ("setup.unresolved_conflict", ">=4.56.0,<5")
    assert reason.render()


def test_versions_have_their_own_constraints() -> None:
    old = replace(PLUGIN, version="0.24.0", engine="vllm-gaudi@0.24")
    assert constraints_of(old) == str(CONSTRAINTS / "vllm-gaudi-0.24.0.txt")
    deepseek = release_of("deepseek_r1")
    assert deepseek is not None
    assert constraints_of(deepseek) == str(CONSTRAINTS / "deepseek_r1.txt")
    assert constraints_of(replace(PLUGIN, version="main")) is None
    assert no_constraints(PLUGIN) is None


def test_a_trial_is_that_of_exactly_this_file(tmp_path: Path) -> None:
    name = "vllm-gaudi-0.26.0.txt"
    found = trial_of(str(CONSTRAINTS / name))
    assert isinstance(found, PinTrial)
    left_out = ("compressed-tensors", "torch", "triton", "xgrammar")
    assert found == PinTrial("2026-11-22", "3.11.7", 147, 145, left_out)
    other = tmp_path / name
    other.write_bytes((CONSTRAINTS / name).read_bytes())
    assert trial_of(str(other)) == found
    other.write_text("numpy==1\n")
    assert trial_of(str(other)) is None
    assert trial_of(str(tmp_path / "unknown.txt")) is None
