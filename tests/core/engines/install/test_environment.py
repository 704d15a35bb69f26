"""An engine's environment: its recipe, what is done already, what each failure says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.mirrors import PROXIES, Mirrors
from gaudi_launch.core.engines.install import environment
from gaudi_launch.core.engines.install.environment import (
    EngineEnvironment,
    Recipe,
    check,
    in_image,
    in_venv,
    linked_python,
    make,
    put_in_force,
    remembered,
)
from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import Code, Release, constraints_of
from tests.support.refusals import refusal

FORK = needed_release("vllm-fork@1.22")
PLUGIN = needed_release("vllm-gaudi")
IMAGE = Release("image-only", "1", Code("a/b"), images=("a/b:1",))
OF_IMAGE = {"engine": "image-only"}
NO_EXTRAS = SetupExtras()


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "engines"


def recipe(folder: Path, *texts: str, **more: Any) -> Recipe:
    """Return a recipe whose steps print these texts."""
    steps = tuple(InstallStep("setup.venv", ("sh", "-c", f"echo {text}")) for text in texts)
    return Recipe("a@1", folder, steps, {}, **more)


def program(path: Path, status: int) -> Path:
    """Make a program with this exit status; return the file of its arguments."""
    calls = path.with_name(f"{path.name}.calls")
    path.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexit {status}\n')
    path.chmod(0o755)
    calls.unlink(missing_ok=True)
    return calls


def test_an_engine_that_is_an_image_has_no_environment() -> None:
    found = refusal(in_venv, IMAGE, "python3", NO_EXTRAS)
    assert found == ("setup.image_only", ExitCode.USAGE, OF_IMAGE)


def test_a_published_image_is_pulled_and_gets_its_own_name(engines: Path) -> None:
    image = PLUGIN.whole_image
    made = in_image(PLUGIN, NO_EXTRAS, "podman")
    assert made == Recipe(
        "vllm-gaudi",
        engines / "vllm-gaudi",
        (InstallStep("setup.pull", ("podman", "pull", str(image))),),
        {},
        image=image,
        program="podman",
    )
    there = Mirrors(registry="r:5000", options=("--registry",))
    steps = in_image(PLUGIN, SetupExtras(mirrors=there)).steps
    source = there.image(str(image))
    assert source != image
    assert steps == (
        InstallStep("setup.pull", ("docker", "pull", source)),
        InstallStep("setup.tag", ("docker", "tag", source, str(image))),
    )


def test_an_image_is_built_on_the_bare_one(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    monkeypatch.setenv("no_proxy", "localhost")
    extras = SetupExtras(vision=True, scale_out=True)
    folder = engines / "vllm-fork-1.22"
    file = folder / "docker" / "Dockerfile"
    name = f"{FORK.built_image}-vision-scale-out"
    words = ("--build-arg", "HTTPS_PROXY", "--build-arg", "no_proxy")
    made = in_image(FORK, extras)
    assert made == Recipe(
        "vllm-fork@1.22",
        folder,
        (
            InstallStep("setup.pull", ("docker", "pull", str(FORK.bare_image))),
            InstallStep(
                "setup.build",
                (
                    *("docker", "build", *words, "--tag", name),
                    *("--file", str(file), str(file.parent)),
                ),
            ),
        ),
        {file: dockerfile(FORK, extras)},
        image=name,
        constraints=constraints_of(FORK) or "",
        program="docker",
    )
    assert in_image(FORK, SetupExtras(unpinned=True)).image == FORK.built_image
    assert in_image(FORK, SetupExtras(unpinned=True)).constraints == ""
    # a part that the published image lacks: it is built, too
    assert in_image(PLUGIN, SetupExtras(vision=True)).image == f"{PLUGIN.built_image}-vision"
    scaled = in_image(PLUGIN, SetupExtras(scale_out=True))
    assert scaled.image == PLUGIN.scale_out_image


def test_what_a_published_image_cannot_satisfy_is_refused() -> None:
    index = Mirrors(pip="https://m/simple", options=("--registry", "--index-url"))
    assert refusal(in_image, PLUGIN, SetupExtras(mirrors=index)) == (
        "setup.not_for",
        ExitCode.USAGE,
        {"flag": "--index-url", "engine": "vllm-gaudi"},
    )
    found = refusal(in_image, IMAGE, SetupExtras(vision=True))
    assert found == ("setup.image_as_is", ExitCode.USAGE, OF_IMAGE)


def test_each_program_keeps_its_own_record_of_images(tmp_path: Path) -> None:
    names = [
        recipe(tmp_path, python="p").record.name,
        recipe(tmp_path, image="i").record.name,
        recipe(tmp_path, image="i", program="podman").record.name,
    ]
    assert names == ["setup.json", "setup-image.json", "setup-image-podman.json"]


def test_steps_run_in_order_and_a_second_run_resumes(tmp_path: Path) -> None:
    said: list[str] = []
    wanted = replace(recipe(tmp_path / "a", "one", "two"), files={tmp_path / "a/b/file": "text"})
    assert make(wanted, said.append) == 2
    assert [line.split()[0] for line in said] == ["[1/2]", "[2/2]"]
    assert (tmp_path / "a/b/file").read_text() == "text"
    assert json.loads(wanted.record.read_text()) == {
        "schema": 1,
        "engine": "a@1",
        "steps": 2,
        "done": [["sh", "-c", "echo one", "text"], ["sh", "-c", "echo two", "text"]],
    }
    log = (tmp_path / "a" / "setup.log").read_text()
    assert log == '\n$ ["sh", "-c", "echo one"]\none\n\n$ ["sh", "-c", "echo two"]\ntwo\n'
    said.clear()
    assert make(wanted, said.append) == 0
    changed = replace(wanted, steps=(wanted.steps[0], *recipe(tmp_path, "three", "four").steps))
    assert remembered(changed) == 1
    assert make(changed, said.append) == 2
    assert [line.split()[0] for line in said] == ["[2/3]", "[3/3]"]


def test_a_program_that_is_missing_is_a_failed_step(tmp_path: Path) -> None:
    step = InstallStep("setup.fetch", (str(tmp_path / "no-git"), "fetch"))
    with pytest.raises(LaunchError) as caught:
        make(replace(recipe(tmp_path), steps=(step,)), lambda line: None)
    assert caught.value.detail == "No such file or directory"
    assert "127" in str(caught.value.text.values["why"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "a"
    assert refusal(make, recipe(folder, "one"), print) == (
        "serve.setup_folder",
        ExitCode.FAILED,
        {"path": str(folder), "why": "Not a directory"},
    )


def test_a_step_does_not_differ_by_place_or_index(tmp_path: Path) -> None:
    def of(folder: Path, *words: str) -> Recipe:
        step = InstallStep("setup.engine", ("pip", "install", *words, f"{folder}/src/x"))
        return Recipe("a@1", folder, (step,), {})

    here = of(tmp_path / "a", "--index-url", "https://one")
    make(replace(here, steps=(InstallStep("setup.venv", ("true",)),)), lambda line: None)

    def record(*words: str) -> None:
        here.record.write_text(json.dumps({"done": [["pip", "install", *words]]}))

    record("/elsewhere/a/src/x")
    assert remembered(here) == 1
    record("--find-links", "/w", "/elsewhere/a/src/x")
    assert remembered(here) == 1
    record("--no-index", "--find-links", "/w", "/elsewhere/a/src/x")
    assert remembered(here) == 1
    record("--upgrade", "/elsewhere/a/src/x")
    assert remembered(here) == 0
    record("/elsewhere/ab/src/x")
    assert remembered(here) == 0


def test_nothing_is_done_where_the_result_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.touch()
    made = recipe(tmp_path, "one", python=str(python))
    make(made, lambda line: None)
    assert remembered(made) == 1
    python.unlink()
    assert remembered(made) == 0
    image = recipe(tmp_path, "one", image="i:1", program="podman")
    make(image, lambda line: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for status, done in ((0, 1), (1, 0)):
        calls = program(tmp_path / "podman", status)
        assert remembered(image) == done
        assert calls.read_text() == "image inspect i:1\n"
    (tmp_path / "podman").unlink()
    assert remembered(image) == 0
    # an unfinished one is not looked for
    assert remembered(replace(image, steps=(*image.steps, *image.steps))) == 1


def test_an_image_is_not_put_in_force_and_an_environment_is(engines: Path) -> None:
    assert put_in_force(recipe(engines / "a-1", "one", image="i"), print) is None
    assert linked_python("a@1") == engines / "a-1.current/venv/bin/python"
    python = engines / "a-1/venv/bin/python"
    made = recipe(engines / "a-1", "one", python=str(python))
    python.parent.mkdir(parents=True)
    python.touch()
    make(made, lambda line: None)
    assert put_in_force(made, print) is None
    assert (engines / "a-1.current").readlink() == Path("a-1")


def test_a_complete_environment_is_never_changed(engines: Path) -> None:
    first = in_venv(FORK, "python3", NO_EXTRAS)

    def complete(made: Recipe, more: int = 0) -> None:
        (made.folder / "venv/bin").mkdir(parents=True, exist_ok=True)
        (made.folder / "venv/bin/python").touch()
        done = [list(step.argv) for step in made.steps]
        count = len(done) + more
        document = {"schema": 1, "done": done + [["more"]] * more, "steps": count}
        made.record.write_text(json.dumps(document))

    complete(first)
    assert in_venv(FORK, "python3", NO_EXTRAS) == first
    other = in_venv(FORK, "python3", SetupExtras(vision=True))
    assert other.folder == engines / "vllm-fork-1.22+2"
    complete(other)
    # the first one, without a link, is in force; the other one has more than these steps
    assert in_venv(FORK, "python3", NO_EXTRAS) == first
    assert in_venv(FORK, "python3", SetupExtras(vision=True)) == other
    EngineEnvironment(FORK.engine).versions().put_in_force(other.folder)
    assert in_venv(FORK, "python3", NO_EXTRAS).folder == other.folder


def test_a_machine_is_checked_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv, image = recipe(tmp_path, python="p"), recipe(tmp_path, image="i", program="podman")
    machine, py = ExitCode.MACHINE, str(tmp_path / "py")
    calls = program(tmp_path / "py", 0)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert refusal(check, image, py, NO_EXTRAS) == (
        "setup.no_docker",
        machine,
        {"program": "podman"},
    )
    assert not calls.exists()
    assert refusal(check, venv, py, NO_EXTRAS) == ("setup.no_git", machine, {})
    assert calls.read_text() == f"-c {environment._HAS_TORCH}\n"
    program(programs / "git", 0)
    program(programs / "podman", 0)
    check(image, py, NO_EXTRAS)
    scale_out = SetupExtras(scale_out=True)
    for user in (1000, 0):
        monkeypatch.setattr(os, "geteuid", lambda: user)  # noqa: B023
        check(venv, py, NO_EXTRAS)
        if user:
            assert refusal(check, venv, py, scale_out) == ("setup.needs_root", machine, {})
        else:
            check(venv, py, scale_out)
    program(tmp_path / "py", 1)
    assert refusal(check, venv, py, NO_EXTRAS) == (
        "setup.no_torch",
        machine,
        {"python": py, "engine": "a@1"},
    )


def test_a_base_that_does_not_run_is_named(tmp_path: Path) -> None:
    python = str(tmp_path / "none")
    assert refusal(check, recipe(tmp_path, python="p"), python, NO_EXTRAS) == (
        "setup.bad_python",
        ExitCode.MACHINE,
        {"python": python, "why": "No such file or directory"},
    )
