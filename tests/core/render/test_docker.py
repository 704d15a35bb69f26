"""One container as a docker command, a compose service and a Quadlet unit, as goldens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render import compose, docker, quadlet
from gaudi_launch.core.render.rendered import Rendered
from tests.support.cli import golden
from tests.support.scripted_hosts import failed

CARDS = Container(
    "own/image:1$x",
    ("-m", "e", "--name", "it's $HOME", "a,b", "100%"),
    env={"B": "2$", "A": 'quote "x"'},
    secrets=("HF_TOKEN", "VLLM_API_KEY", "https_proxy"),
    entrypoint="python3",
    mounts=(
        Mount("/read only", "/read only", read_only=True),
        Mount("/write,x", "/in side", fill=True),
        Mount("/write y", "/y", fill=True),
    ),
    ports=((8000, 80), (9000, 90)),
    address="10.0.0.1",
    modules=(0, 1),
    indices=(6, 4),
    cpus="0-3",
    health="/health",
    start_seconds=1800,
    url="http://127.0.0.1:80",
    scale_out=True,
)
PLAIN = Container("image", (), confined=True)
CONTAINERS = [("cards", CARDS), ("plain", PLAIN)]
FILES = {"/f/a b": "text's\n"}
DOCKERFILE = "FROM x\nRUN y$z\n"
INDICES = message("render.indices", modules="0,1", indices="6,4")


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_a_docker_script(name: str, container: Container, plain_english: None) -> None:
    built = DOCKERFILE if name == "cards" else None
    files = FILES if name == "cards" else {}
    found = docker.render(container, "svc", ["head", "more"], built, files)
    golden(f"render-parts/docker-{name}.sh", found.files["docker.sh"])
    notes = (INDICES,) if name == "cards" else ()
    assert found == Rendered(found.files, frozenset({"docker.sh"}), notes)


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_a_compose_file(name: str, container: Container, plain_english: None) -> None:
    built = DOCKERFILE if name == "cards" else None
    found = compose.render(container, "Svc.1", ["head", "more"], built)
    golden(f"render-parts/compose-{name}.yaml", found.files["compose.yaml"])
    assert found == Rendered(found.files, notes=(INDICES,) if name == "cards" else ())


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_a_quadlet_unit(name: str, container: Container, plain_english: None) -> None:
    built = DOCKERFILE if name == "cards" else None
    found = quadlet.render(container, "svc", ["head %", "more"], built)
    golden(f"render-parts/quadlet-{name}.container", found.files["svc.container"])
    unit = message("render.quadlet", name="svc", least="4.8")
    if name == "plain":
        assert (list(found.files), found.notes) == (["svc.container"], (unit,))
        return
    assert found.files["Containerfile"] == DOCKERFILE
    assert found.notes == (
        INDICES,
        unit,
        message("render.containerfile", image="own/image:1$x"),
        message("render.podman_secrets", names="HF_TOKEN, VLLM_API_KEY"),
    )


@pytest.mark.parametrize("word", ["", ";"])
def test_words_that_quadlet_cannot_have(word: str) -> None:
    container = replace(PLAIN, argv=("a", word))
    assert failed(lambda: quadlet.render(container, "x", ["head"], None)) == (
        "render.quadlet_word", ExitCode.USAGE, {"word": repr(word)}, None,
    )  # fmt: skip


def test_a_port_on_every_address() -> None:
    container = replace(CARDS, address="")
    service = compose.service_of(container, "x", None)
    assert service["ports"] == ["8000:80", "9000:90"]
    unit = quadlet.render(container, "x", ["head"], None).files["x.container"]
    assert "\nPublishPort=8000:80\nPublishPort=9000:90\n" in unit


def test_fields_of_a_mount_that_have_quotes() -> None:
    mount = Mount('/a"b,c', "/d", read_only=True)
    unit = quadlet.render(replace(PLAIN, mounts=(mount,)), "x", ["head"], None)
    (line,) = [each for each in unit.files["x.container"].splitlines() if "--mount" in each]
    assert line == (
        'PodmanArgs="--mount=type=bind,\\"source=/a\\"\\"b,c\\",destination=/d,ro=true"'
    )
