"""The steps that collect an engine: real git, and the words for pip."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.engines.install.step_runner import InstallStep, run_steps
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import Code
from gaudi_launch.extensions.offline import pack_steps
from gaudi_launch.extensions.offline.pack_steps import (
    CollectOrder,
    build_requirements,
    collected,
    gaudi_steps,
    platforms,
    repositories,
)
from tests.support.refusals import raising, refused

IDENTITY = {
    f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


def git(*words: str) -> str:
    environment = {**os.environ, **IDENTITY}
    done = subprocess.run(
        ["git", *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: dict[str, str], branch: str = "main") -> str:
    """Make a repository with one commit on a branch; return the commit."""
    git("init", "--quiet", "--initial-branch", branch, str(folder))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git("-C", str(folder), "add", ".")
    git("-C", str(folder), "commit", "--quiet", "-m", "one")
    return git("-C", str(folder), "rev-parse", "HEAD")


def order(folder: Path, platform: str = "") -> CollectOrder:
    (folder / "work").mkdir(parents=True)
    return CollectOrder("python3", folder / "wheels", folder / "git", folder / "work", platform)


@pytest.mark.parametrize("name", ["linux_x86_64", "win_amd64", "manylinux_2_x86_64", ""])
def test_another_platform_is_refused(name: str) -> None:
    with refused("offline.platform", ExitCode.USAGE, found=name):
        platforms(name)


def test_wheels_are_built_here_and_only_taken_for_another_platform(tmp_path: Path) -> None:
    here = collected(order(tmp_path / "a"), tmp_path / "w", ("x",))
    there = collected(order(tmp_path / "b", "manylinux_2_5_x86_64"), tmp_path / "w", ("x",))
    assert here[1:6] == ("-m", "pip", "--disable-pip-version-check", "--no-input", "wheel")
    assert there[5] == "download"
    assert there[there.index("--only-binary") :] == (
        *("--only-binary", ":all:", "--platform=manylinux_2_5_x86_64"),
        *("--platform=manylinux1_x86_64", "--platform=linux_x86_64", "x"),
    )


def test_code_is_packed_with_the_code_that_it_names(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    build = '[build-system]\nrequires = ["ninja", "setuptools"]\n'
    files = {
        "pyproject.toml": build,
        "requirements-hpu.txt": "a @ git+https://github.com/me/needed.git@main\n",
    }
    commit = repository(mirror / "me/engine.git", files, "release")
    needed = repository(mirror / "me/needed.git", {"a": ""})
    extension = repository(mirror / "me/extension.git", {"pyproject.toml": build})
    release = replace(
        needed_release("vllm-fork@1.21"),
        code=Code("me/engine", "release", commit[:9]),
        extension=Code("me/extension", "", extension),
    )
    wanted = order(tmp_path / "pack")
    mirrors = Mirrors(git=str(mirror))
    steps = gaudi_steps(wanted, release)
    at = [step.id for step in steps].index("offline.step_needs")
    environment = mirrors.git_variables(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAUDI_LAUNCH_GIT_MIRROR", str(mirror))
        run_steps(steps[1 : at + 1], lambda line: None, mirrors)
    assert environment and (wanted.work / "build-requirements.txt").read_text() == (
        "ninja\nsetuptools\n"
    )
    bare = wanted.git / "me/engine.git"
    assert git("-C", str(bare), "rev-parse", "release") == commit
    assert git("-C", str(wanted.git / "me/needed.git"), "rev-parse", "main") == needed
    # the address of the mirror is nowhere in the pack
    content = b"".join(path.read_bytes() for path in wanted.git.rglob("*") if path.is_file())
    assert str(mirror).encode() not in content
    # the steps of setup find it by its public address
    clone = tmp_path / "clone"
    offline = Mirrors(git=wanted.git.as_uri()).git_variables(os.environ)
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    fetch = ["git", "-C", str(clone), "fetch", "--tags", release.code.address, "release"]
    subprocess.run(fetch, env={**os.environ, **offline}, check=True, capture_output=True)
    assert git("-C", str(clone), "rev-parse", "FETCH_HEAD") == commit


def test_a_commit_that_the_mirror_lacks_ends_the_pack(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    repository(mirror / "me/engine.git", {"pyproject.toml": ""}, "release")
    release = needed_release("vllm-fork@1.21")
    release = replace(release, code=Code("me/engine", "release", "0" * 40), extension=None)
    steps = gaudi_steps(order(tmp_path / "pack"), release)
    with raising("serve.setup_failed"):
        run_steps(steps[1:4], lambda line: None, Mirrors(git=str(mirror)))


def test_a_release_without_fixed_versions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_steps, "constraints_of", lambda release: None)
    with raising("offline.no_constraints"):
        gaudi_steps(order(tmp_path), needed_release("vllm-fork@1.21"))


def test_pip_is_that_of_an_environment_for_work_alone(tmp_path: Path) -> None:
    order = CollectOrder("/usr/bin/python3.11", tmp_path / "w", tmp_path / "g", tmp_path / "work")
    folder = str(tmp_path / "work" / "venv")
    assert order.pip_python == f"{folder}/bin/python"
    words = ("/usr/bin/python3.11", "-m", "venv", "--clear", folder)
    assert order.venv_step == InstallStep("offline.step_pip", words)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[build-system]\nrequires = ["setuptools", "wheel"]\n', ["setuptools", "wheel"]),
        (
            "[project]\nrequires = ['no']\n[build-system]\nrequires = [\n"
            '  "setuptools_scm[toml]>=8",  # "comment"\n  \'ninja\',\n]\nbuild-backend = "x"\n'
            '[tool.x]\nrequires = ["other"]\n',
            ["setuptools_scm[toml]>=8", "ninja"],
        ),
        ("[project]\nname = 'x'\n", ["setuptools", "wheel"]),
    ],
)
def test_the_build_system_of_a_project(text: str, wanted: list[str]) -> None:
    assert build_requirements({"pyproject.toml": text}) == wanted


def test_the_requirements_file_of_a_build_without_its_pytorch() -> None:
    text = "# head\n-r other.txt\ncmake>=3.26 # why\n\ntorch==2.9\ntorchvision\nninja\n"
    assert build_requirements({"cuda.txt": text}) == ["cmake>=3.26", "ninja"]


def test_repositories_that_requirements_name() -> None:
    texts = [
        "a @ git+https://github.com/Owner/name.git@abc123\n# git+https://github.com/no/no.git",
        "git+https://github.com/Owner/name.git@abc123\ngit+https://github.com/me/it-is_2.x@main\n",
        "git+https://example.com/Owner/other.git\n",
    ]
    assert repositories(texts) == ("Owner/name", "me/it-is_2.x")
