"""Quadlet units: podman's own generator reads them where it is; everywhere, known keys and
systemd's quoting."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.docker_command import PODMAN_RUNTIME
from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render.plan_container import container_of
from gaudi_launch.core.render.quadlet import render
from tests.support.plans import planned
from tests.support.refusals import failing
from tests.support.render_tools import NAMES, ODD, generated, loaded, no_control

# containers/podman@c6580b4:docs/source/markdown/podman-systemd.unit.5.md, those of podman 4.8
# (RELEASE_NOTES.md: GlobalArgs came with 4.8, PodmanArgs with 4.6, Secret and Mount with 4.5)
KEYS = {
    "Unit": {"Description", "Wants", "After"},
    "Container": {
        *(
            "Image",
            "ContainerName",
            "GlobalArgs",
            "AddCapability",
            "Network",
            "PublishPort",
            "RunInit",
        ),
        *("Environment", "Secret", "PodmanArgs", "Exec", "Notify"),
    },
    "Service": {"ExecStartPre", "TimeoutStartSec", "TimeoutStopSec", "Restart"},
    "Install": {"WantedBy"},
}


def lines(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of a unit."""
    found, section = [], ""
    for line in text.split("\n"):
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.append((section, key, value))
    return found


def made() -> Container:
    plan, host = planned(cache_dir="/data/warm")
    return container_of(plan, host, environment={"HF_TOKEN": "hf_x"})


def test_only_known_keys() -> None:
    rendered = render(
        made(), "small", ["head"], dockerfile(needed_release("vllm-fork@1.21"), SetupExtras())
    )
    assert list(rendered.files) == ["small.container", "Containerfile"]
    found = lines(rendered.files["small.container"])
    assert [(s, k) for s, k, _ in found if k not in KEYS.get(s, set())] == []
    values = {(s, k): v for s, k, v in found}
    assert values["Container", "Image"] == "localhost/gaudi-launch/vllm-fork:1.21-277a33cd9"
    assert values["Container", "GlobalArgs"] == f"--runtime={PODMAN_RUNTIME}"
    assert values["Container", "Secret"] == "HF_TOKEN,type=env,target=HF_TOKEN"
    assert values["Service", "TimeoutStartSec"] == "1800"
    assert not any("hf_x" in v for _, _, v in found)


def odd_container(words: Sequence[str], env: dict[str, str], folder: str) -> Container:
    mount = Mount(f"/w{folder}", "/w")
    return Container(
        "docker.io/i:1", tuple(words), env, entrypoint="python3", mounts=(mount,), url="http://h:1"
    )


def mounted(word: str) -> list[str]:
    fields: list[str] = next(
        csv.reader(io.StringIO(word.removeprefix("--mount="), newline=""), strict=True)
    )
    return fields


PROPERTY = settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT = ODD.filter(no_control)
WORDS = st.lists(TEXT.filter(lambda word: word not in ("", ";")), max_size=10)


@PROPERTY
@given(words=WORDS, env=st.dictionaries(NAMES, TEXT, max_size=4), folder=TEXT)
def test_every_line_of_words_is_quoted_as_systemd_reads_it(
    words: list[str], env: dict[str, str], folder: str
) -> None:
    container = odd_container(words, env, folder)
    found = lines(render(container, "odd", ["head"], None).files["odd.container"])
    run = " ".join(value for _, key, value in found if key in ("PodmanArgs", "Exec"))
    # Quadlet copies Environment= into its ExecStart=, so variables are doubled there as well
    variables = " ".join(value for _, key, value in found if key == "Environment")
    unit = f"[Service]\nType=oneshot\nExecStart=/bin/podman {run}\nExecStart=/bin/env {variables}\n"
    podman, environment = loaded(unit).commands["ExecStart"]
    assert environment[1:] == [f"{name}={value}" for name, value in sorted(env.items())]
    assert podman[len(podman) - len(words) :] == words
    mounts = [mounted(word) for word in podman if word.startswith("--mount=")]
    assert mounts == [["type=bind", f"source=/w{folder}", "destination=/w"]]


@PROPERTY
@given(words=WORDS, env=st.dictionaries(NAMES, TEXT, max_size=4), folder=TEXT)
def test_podmans_generator_reads_back_every_word(
    words: list[str], env: dict[str, str], folder: str, tmp_path: Path
) -> None:
    container = odd_container(words, env, folder)
    service = generated(tmp_path / "in", render(container, "odd", ["head"], None).files)
    (podman,) = loaded(service).commands["ExecStart"]
    assert podman[len(podman) - len(words) - 1 :] == ["docker.io/i:1", *words]
    given = [podman[at + 1] for at, word in enumerate(podman) if word == "--env"]
    assert sorted(given) == sorted(f"{name}={value}" for name, value in env.items())
    mounts = [mounted(word) for word in podman if word.startswith("--mount=")]
    assert mounts == [["type=bind", f"source=/w{folder}", "destination=/w"]]


def test_podmans_generator_accepts_the_whole(tmp_path: Path) -> None:
    container = made()
    text = dockerfile(needed_release("vllm-fork@1.21"), SetupExtras())
    service = generated(tmp_path / "in", render(container, "small", ["head"], text).files)
    (podman,) = loaded(service).commands["ExecStart"]
    assert podman[:3] == ["/usr/bin/podman", f"--runtime={PODMAN_RUNTIME}", "run"]
    assert podman[len(podman) - len(container.argv) :] == list(container.argv)
    assert {"--init", "--sdnotify=healthy", "--ipc=host", "--entrypoint=python3"} <= set(podman)


@pytest.mark.parametrize("word", ["", ";"])
def test_words_that_quadlet_loses_are_refused(word: str) -> None:
    with failing("render.quadlet_word", ExitCode.USAGE):
        render(odd_container(["a", word, "b"], {}, ""), "odd", ["head"], None)
