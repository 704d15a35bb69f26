"""A Container as the words of docker run."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.docker_command import PODMAN_RUNTIME, card_indices, docker_run
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.planning.container import Container, Mount
from tests.support.refusals import failing

CARDS = Container(
    image="engine:1",
    argv=("--model-id", "m"),
    env={"A": "1 2", "B": ""},
    secrets=("HF_TOKEN",),
    mounts=(Mount("/models/m", "/models/m", read_only=True), Mount("/data", "/data")),
    ports=((8080, 80),),
    address="127.0.0.1",
    modules=(0, 1),
    indices=(3, 2),
    cpus="0-3",
)


@pytest.mark.parametrize(
    ("address", "word"),
    [("", "8080:80"), ("0.0.0.0", "0.0.0.0:8080:80"), ("::1", "[::1]:8080:80")],
)
def test_where_a_port_is_published(address: str, word: str) -> None:
    words = docker_run(replace(CARDS, address=address), "here")
    assert words[words.index("-p") + 1] == word


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1), st.booleans()
)
def test_any_folder_arrives_as_it_is_named(source: str, read_only: bool) -> None:
    container = Container("i", (), mounts=(Mount("/" + source, "/data", read_only),))
    words = docker_run(container, "here")
    flag, value = words[words.index("--network=host") + 1 : -1]
    if flag == "-v":
        wanted = [f"/{source}", "/data", *(["ro"] if read_only else [])]
        assert value.split(":") == wanted
    else:
        # docker reads --mount with a reader of comma-separated values
        wanted = [
            "type=bind",
            f"source=/{source}",
            "target=/data",
            *(["readonly"] if read_only else []),
        ]
        assert next(csv.reader([value])) == wanted


def test_indices_are_those_of_the_modules() -> None:
    host = Host(
        cards=(Card(index=1, module=4), Card(index=0, module=6), Card(index=None, module=7))
    )
    assert card_indices(host, (6, 4)) == (0, 1)
    for module in (7, 5):
        with failing("docker.no_index", ExitCode.MACHINE) as error:
            card_indices(host, (module,))
        assert f"module {module}" in str(error.value)


def test_podmans_runtime_comes_before_run() -> None:
    words = docker_run(replace(CARDS, program="podman"), "here")
    assert words[:3] == ("podman", f"--runtime={PODMAN_RUNTIME}", "run")
    assert "--cap-add=sys_nice" in words and "--runtime=habana" not in words


def test_a_confined_container_has_its_users_rights() -> None:
    confined = Container("i:1", (), confined=True, user="1000:100")
    words = docker_run(confined, "here")
    end = words.index("--network=host")
    assert words[5:end] == (
        "here",
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--shm-size=2g",
        "--user=1000:100",
    )
    rootless = docker_run(replace(confined, program="podman"), "here")
    assert rootless[rootless.index("--user=1000:100") + 1] == "--userns=keep-id"
