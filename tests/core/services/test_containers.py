"""Containers of docker and podman: the limits that they can have, and their programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.docker_command import PODMAN_RUNTIME
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.services.containers import (
    check_program,
    has_image,
    image_of,
    make_ready,
    remover,
)
from tests.support.refusals import refusal

PROGRAM = """#!{python} -ISE
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[0]).parent
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
with (folder / "calls").open("a") as file:
    print(json.dumps(words), file=file)
for start, (status, out, err) in json.loads((folder / "answers").read_text()).items():
    if " ".join(words).startswith(start):
        sys.stderr.write(err)
        print(out, end="")
        sys.exit(status)
"""


class Programs:
    """Stand for docker and podman on the PATH: an answer by the first arguments, and the calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, tuple[int, str, str]] = {}
        self.answer({})
        for name in ("docker", "podman"):
            (folder / name).write_text(PROGRAM.format(python=sys.executable))
            (folder / name).chmod(0o755)

    def answer(self, answers: Mapping[str, tuple[int, str, str]]) -> None:
        self.answers.update(answers)
        (self.folder / "answers").write_text(json.dumps(self.answers))

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)


MACHINE = ExitCode.MACHINE


def test_docker_must_answer_and_know_the_runtime_of_the_cards(programs: Programs) -> None:
    info = "docker info --format {{json .Runtimes}}"
    programs.answer({info: (0, json.dumps({"runc": {}, "habana": {}}), "")})
    check_program("docker", needs_cards=True)
    assert programs.calls == [info.split(" ", 3)]
    programs.answer({info: (0, json.dumps({"runc": {}, "io": {}}), "")})
    check_program("docker", needs_cards=False)
    assert refusal(check_program, "docker", needs_cards=True) == (
        "docker.no_runtime",
        MACHINE,
        {"runtime": "habana", "known": "io, runc"},
    )
    programs.answer({info: (0, "{}", "")})
    assert refusal(check_program, "docker", needs_cards=True)[2]["known"] == "-"
    for answer, why in (
        ((1, "{}", "first\nCannot connect. \n"), "Cannot connect"),
        ((1, "", ""), "exit status 1"),
        ((0, "no JSON", ""), "exit status 0"),
        ((0, "[]", "x" * 400), "x" * 300),
    ):
        programs.answer({info: answer})
        assert refusal(check_program, "docker", needs_cards=False) == (
            "docker.no_answer",
            MACHINE,
            {"why": why},
        )
    (programs.folder / "docker").unlink()
    assert refusal(check_program, "docker", needs_cards=False) == ("docker.missing", MACHINE, {})


def test_podman_must_answer_and_run_with_the_runtime_of_the_cards(programs: Programs) -> None:
    info, cards = "podman info --format", f"podman --runtime={PODMAN_RUNTIME} info"
    check_program("podman", needs_cards=True)
    assert [" ".join(words) for words in programs.calls] == [
        "podman info --format {{.Host.OCIRuntime.Name}}",
        cards,
    ]
    programs.answer({cards: (125, "", "")})
    check_program("podman", needs_cards=False)
    programs.answer({info: (0, "crun\n", "")})
    values = {"runtime": PODMAN_RUNTIME, "known": "crun"}
    assert refusal(check_program, "podman", needs_cards=True) == (
        "podman.no_runtime",
        MACHINE,
        values,
    )
    programs.answer({info: (0, "", "")})
    assert refusal(check_program, "podman", needs_cards=True)[2]["known"] == "-"
    programs.answer({info: (2, "", "broken")})
    assert refusal(check_program, "podman", needs_cards=False) == (
        "podman.no_answer",
        MACHINE,
        {"why": "broken"},
    )


def test_a_program_that_is_silent_or_does_not_start_is_named(programs: Programs) -> None:
    (programs.folder / "podman").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    assert refusal(has_image, "i", "podman", 0.2) == ("podman.slow", MACHINE, {"seconds": 0.2})
    (programs.folder / "docker").write_text("#!/no/interpreter\n")
    why = "No such file or directory"
    assert refusal(has_image, "i") == ("docker.no_answer", MACHINE, {"why": why})
    # a container that cannot be removed costs nothing
    remover("box", ("docker", "run"))(1)


def test_the_image_of_an_engine_is_found_or_not(programs: Programs) -> None:
    engine: Any = SimpleNamespace(image="i:1")
    assert image_of(engine) == "i:1"
    assert programs.calls == [["docker", "image", "inspect", "i:1"]]
    programs.answer({"docker image inspect": (1, "", "")})
    assert image_of(engine) is None
    nothing: Any = SimpleNamespace(image=None)
    assert image_of(nothing) is None
    (programs.folder / "docker").write_text("#!/no/interpreter\n")
    assert image_of(engine) is None


def made(folder: Path, **more: Any) -> Container:
    return Container("i:1", (), name="box", **more)


def ready(programs: Programs, container: Container) -> list[str]:
    said: list[str] = []
    name = container.program
    programs.answer({f"{name} container inspect": (1, "", "")})
    programs.answer({"docker info": (0, '{"habana": {}}', "")})
    make_ready(container, said.append)
    return said


def test_a_name_that_is_taken_is_refused(programs: Programs, tmp_path: Path) -> None:
    container = made(tmp_path, program="podman")
    assert refusal(make_ready, container, print) == ("podman.name_taken", MACHINE, {"name": "box"})


def wrong(programs: Programs, container: Container) -> tuple[str, ExitCode, Mapping[str, Any]]:
    programs.answer({"docker info": (0, "{}", "")})
    programs.answer({"docker container inspect": (1, "", "")})
    return refusal(make_ready, container, print)


def test_folders_and_files_that_a_container_lacks_are_named(
    programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    none = str(tmp_path / "none")
    assert wrong(programs, made(tmp_path, mounts=(Mount(none, "/m"),))) == (
        "docker.no_folder",
        ExitCode.USAGE,
        {"path": none, "target": "/m"},
    )
    inside = str(tmp_path / "file" / "x")
    assert wrong(programs, made(tmp_path, mounts=(Mount(inside, "/m", fill=True),))) == (
        "docker.folder_failed",
        MACHINE,
        {"path": inside, "why": "Not a directory"},
    )
    for config in ("/work/quant/q.json", "./quant/q.json", "quant/q.json"):
        container = made(
            tmp_path, mounts=(Mount(str(tmp_path), "/work/quant"),), env={"QUANT_CONFIG": config}
        )
        assert wrong(programs, container) == (
            "docker.no_folder",
            ExitCode.USAGE,
            {"path": str(tmp_path / "q.json"), "target": "QUANT_CONFIG"},
        )
    (tmp_path / "q.json").touch()
    ready(programs, container)
    elsewhere = made(tmp_path, mounts=container.mounts, env={"QUANT_CONFIG": "/image/q.json"})
    ready(programs, elsewhere)


def test_a_confined_container_must_be_able_to_read_the_model(
    programs: Programs, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.touch(0o600)
    tmp_path.chmod(0o755)
    mount = Mount(str(tmp_path), "/m", read_only=True)
    assert wrong(programs, made(tmp_path, mounts=(mount,), confined=True)) == (
        "docker.unreadable",
        ExitCode.USAGE,
        {"path": str(weights), "folder": str(tmp_path)},
    )
    ready(programs, made(tmp_path, mounts=(mount,), confined=True, user="0:0"))
    ready(programs, made(tmp_path, mounts=(mount,)))
    written = Mount(str(tmp_path), "/m")
    ready(programs, made(tmp_path, mounts=(written,), confined=True))
    weights.chmod(0o644)
    ready(programs, made(tmp_path, mounts=(mount,), confined=True))
