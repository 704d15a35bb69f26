"""compose files: Compose itself accepts them and reads back every word."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render import yaml_text
from gaudi_launch.core.render.compose import ComposeEngine, mounted, render, render_several
from gaudi_launch.core.render.gateway import GatewayFiles, GatewaySecrets
from gaudi_launch.core.render.plan_container import container_of
from gaudi_launch.extensions.stack.gateway.gateway_image import FOLDER, RUN_FOLDER, health_words
from tests.support.cli import golden
from tests.support.plans import planned
from tests.support.render_tools import NAMES, ODD, tool


def config(folder: Path, text: str, **more: str) -> tuple[int, dict[str, Any], str]:
    """What Compose makes of a file: its exit status, the whole project, its complaints."""
    file = folder / "compose.yaml"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            tool("docker-compose"),
            "--file",
            str(file),
            "config",
            "--format",
            "json",
            "--no-normalize",
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **more},
    )
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr


def undoubled(value: Any) -> Any:
    """Compose writes its answer so that it could read it again."""
    if isinstance(value, dict):
        return {key: undoubled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [undoubled(inner) for inner in value]
    return value.replace("$$", "$") if isinstance(value, str) else value


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"])
def test_compose_accepts_and_keeps_the_plan(engine: str, tmp_path: Path) -> None:
    plan, host = planned(engine, cards=8)
    container = container_of(plan, host, environment={"HF_TOKEN": "hf_x"})
    text = dockerfile(needed_release(engine), SetupExtras())
    code, read, errors = config(
        tmp_path, render(container, "Small.1", ["head"], text).files["compose.yaml"]
    )
    assert (code, errors) == (0, "")
    assert read["name"] == "small-1"
    service = read["services"]["Small.1"]
    assert (
        service["runtime"] == "habana"
        and service["ipc"] == "host"
        and service["network_mode"] == "host"
    )
    assert service["cap_add"] == ["sys_nice"] and service["init"] is True
    assert service["ulimits"] == {
        "memlock": {"soft": -1, "hard": -1},
        "nofile": {"soft": 65535, "hard": 65535},
    }
    assert service["command"] == list(container.argv) and service["entrypoint"] == ["python3"]
    assert service["build"]["dockerfile_inline"] == text
    cards = {"HABANA_VISIBLE_DEVICES": ",".join(map(str, sorted(container.indices)))}
    assert service["environment"] == {**container.env, **cards, "HF_TOKEN": None}
    assert service["healthcheck"]["start_period"] in ("30m0s", "2h0m0s")
    assert service["cpuset"] == container.cpus


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    words=st.lists(ODD, max_size=12),
    env=st.dictionaries(NAMES, ODD, max_size=5),
    folder=ODD.filter(lambda name: not set(name) & {"/", "\n", "\r"} and name not in (".", "..")),
)
def test_compose_reads_back_every_word(
    words: list[str], env: dict[str, str], folder: str, tmp_path: Path
) -> None:
    mount = Mount(f"/w/{folder}x", f"/w/{folder}x", True)
    container = Container(
        "i", tuple(words), env, entrypoint="python3", mounts=(mount,), url="http://h:1"
    )
    code, read, errors = config(
        tmp_path, render(container, "nn", ["head"], None).files["compose.yaml"]
    )
    assert code == 0, errors
    service = undoubled(read["services"]["nn"])
    assert (service.get("command") or []) == words
    assert (service.get("environment") or {}) == env
    assert service["volumes"] == [
        {
            "type": "bind",
            "source": mount.source,
            "target": mount.target,
            "read_only": True,
            "bind": {"create_host_path": False},
        }
    ]


def test_compose_stops_without_the_servers_key(tmp_path: Path) -> None:
    text = render(Container("i", ("x",), secrets=("VLLM_API_KEY",)), "nn", ["head"], None).files[
        "compose.yaml"
    ]
    code, _, errors = config(tmp_path, text)
    assert code != 0 and "VLLM_API_KEY" in errors
    code, read, _ = config(tmp_path, text, VLLM_API_KEY="mine")
    assert (code, read["services"]["nn"]["environment"]) == (0, {"VLLM_API_KEY": "mine"})


def test_the_checker_would_find_a_wrong_key(tmp_path: Path) -> None:
    code, _, errors = config(tmp_path, "services: {n: {image: i, cap_ad: [x]}}\n")
    assert code != 0 and "cap_ad" in errors


@pytest.mark.parametrize(
    "mark", ["\x07", "\x1b", "\x7f", "\x80", "\x9b", "\ufffe", "\x0b", "\x0c"], ids=ascii
)
def test_control_characters_stay_in_values_and_leave_comments(mark: str) -> None:
    word = f"/models/a{mark}b"
    content = yaml_text.documents([yaml_text.dump({"model": word})], [f"serving {word}"])
    assert yaml.safe_load(content) == {"model": word}
    assert mark not in content.replace(yaml_text.dump({"model": word}), "")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/models/A_1.0", "/models/A_1.0"),
        ("host:path@2", "host:path@2"),
        ("y", '"y"'),
        ("Off", '"Off"'),
        ("NULL", '"NULL"'),
        ("yess", "yess"),
        ("1e3", '"1e3"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        ("a:", '"a:"'),
        ("模型", '"模型"'),
        ("a\nb\n", "|\n  a\n  b"),
    ],
)
def test_only_texts_that_no_reader_could_misread_have_no_quotes(value: str, written: str) -> None:
    assert yaml_text.dump({"k": value}) == f"k: {written}\n"


GATEWAY = GatewayFiles(
    ("haproxy", "-f", "x$y"),
    {"haproxy.cfg": "text\n", "models.map": ""},
    image="gateway:1",
    dockerfile="FROM gateway\n",
    folder=FOLDER,
    run_folder=RUN_FOLDER,
    check=health_words(9000),
)
CARDS = Container("image", ("a",), modules=(0, 1), indices=(6, 4))
ENGINES = (
    ComposeEngine("site-one", CARDS, None, ()),
    ComposeEngine("site-two", Container("other", ("b",)), "FROM x\n", ("site-one", "site-zero")),
)
OPEN = GatewaySecrets()
CLOSED = GatewaySecrets("/keys$1", "/cert.pem", "/key.pem")


def test_the_paths_of_secrets_in_the_container() -> None:
    assert mounted(OPEN) == GatewaySecrets()
    assert mounted(CLOSED) == GatewaySecrets(
        "/run/secrets/gateway-keys",
        "/run/secrets/gateway-certificate",
        "/run/secrets/gateway-key",
    )


@pytest.mark.parametrize(("name", "files"), [("open", OPEN), ("closed", CLOSED)])
def test_the_services_of_a_stack(name: str, files: GatewaySecrets, plain_english: None) -> None:
    found = render_several("Site.1", ["head", "more"], ENGINES, GATEWAY, files)
    golden(f"render-parts/stack-{name}.yaml", found.files["compose.yaml"])
    assert {path: text for path, text in found.files.items() if path != "compose.yaml"} == {
        "gateway/haproxy.cfg": "text\n",
        "gateway/models.map": "",
    }
    secrets = message("render.stack_secrets", paths="/keys$$1, /cert.pem, /key.pem")
    assert found.notes == (
        message("render.indices", modules="0,1", indices="6,4"),
        *([secrets] if name == "closed" else []),
        message("render.stack_build", image="gateway:1"),
    )
    assert found.executable == frozenset()
