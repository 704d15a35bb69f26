"""Command lines for Kubernetes, and the objects that they render."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from tests.support.places import DATA

QWEN = (
    *("-w", "/models/Qwen2-72B-Instruct", "-n", "4"),
    *("--engine", "vllm-fork@1.22", "--accelerator", "gaudi2"),
)


CHAT = ("-w", "Qwen/Qwen3-8B", "-n", "1", "--engine", "vllm-fork@1.22", "--accelerator", "gaudi3")


R1 = (
    *("-w", "/models/DeepSeek-R1-G2", "-n", "8", "--engine", "deepseek_r1"),
    *("--accelerator", "gaudi2", "--trust-remote-code"),
)


LLAMA = ("-w", "NousResearch/Llama-2-13b-chat-hf", "--accelerator", "inf2.48xlarge")


WITH = (
    "--with", "-w BAAI/bge-m3 -n 1 --engine vllm-gaudi -l 8192",
    "--with", "-w BAAI/bge-reranker-v2-m3 -n 1 --engine vllm-gaudi -l 8192",
)  # fmt: skip


TGI = ("-w", "meta-llama/Llama-3.1-8B-Instruct", "--engine", "tgi", "--accelerator", "gaudi2")


CASES = {
    "deployment-gaudi2": QWEN,
    "deployment-gaudi2e": ("-w", "/models/QwQ-32B", "-n", "8", "--engine", "vllm-fork@1.21",
                           "--accelerator", "gaudi2e",
                           "--no-recipes", "--runtime-class", "habana", "--weights-claim",
                           "weights"),
    "deployment-gaudi3-hpa": (*CHAT, "--autoscale", "hpa", "--replicas", "2..4", "--monitor",
                              "--secret", "hub:HF_TOKEN,VLLM_API_KEY", "--namespace", "chat",
                              "--webui",
                              "--ingress-host", "chat.example.com", "--ingress-class", "nginx"),
    "deployment-gaudi3-nodes": (*CHAT, "--storage-class", "nfs",
                                "--node-selector", "node.kubernetes.io/instance-type=gaudi3",
                                "--tolerate", "example.com/ai"),
    "three-models-gaudi2": (*QWEN, *WITH, "--name", "stack"),
    "leaderworkerset-gaudi2": (*R1, "--kind", "leaderworkerset", "--nodes", "2"),
    "deployment-gaudi2-tgi": (*TGI, "-n", "1", "--secret", "hub"),
    "rayservice-gaudi3": (*CHAT, "--kind", "rayservice", "--image", "registry/ray-vllm:1",
                          "--replicas", "1..4"),
    "rayservice-inf2.48xlarge": ("-w", "NousResearch/Llama-2-13b-chat-hf", "--accelerator",
                                 "inf2.48xlarge", "--name", "llama2", "--namespace", "llama2",
                                 "--webui", "--ingress-host",
                                 "chat.example.com", "--ingress-class", "nginx"),
    "leaderworkerset-gaudi2-pp": (*R1, "--kind", "leaderworkerset", "--nodes", "2", "--layout",
                                  "pp",
                                  "--interface", "net1", "--name", "r1"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path) -> None:
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "MODELSCOPE_API_TOKEN",
        "HF_HOME",
        "HF_HUB_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith(("HABANA_", "PT_HPU_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the first file of what was rendered."""
    code = run(["render", "kubernetes", "--json", *words])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    document = json.loads(out)
    assert document["schema"] == 1
    return str(document["files"][0]["text"])


class _Reader(yaml.CSafeLoader):
    """Reads a lone ``=`` as the text that it is to Helm and to Kubernetes.

    PyYAML knows no value for it (yaml/pyyaml#89).
    """


_Reader.add_constructor("tag:yaml.org,2002:value", lambda _, node: str(node.value))


def objects(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.load_all(text, Loader=_Reader) if found]


def main_of(text: str) -> dict[str, Any]:
    kinds = ("Deployment", "LeaderWorkerSet", "RayService")
    return next(found for found in objects(text) if found["kind"] in kinds)


def steady(text: str) -> str:
    """Return the text without parts that other packages decide.

    These are the texts of programs, their checksums, and the key of a recipe cache.
    """
    sum_of = r"^( +checksum/(?:scripts|application|page)): \W?[0-9a-f]{64}\W?\n"
    text = re.sub(sum_of, r"\1: its-sum\n", text, flags=re.MULTILINE)
    text = re.sub(r'subPath: "?[0-9a-f]{16}"?\n', "subPath: key-of-the-recipes\n", text)
    return re.sub(
        r"^(  [\w.]+\.py: \|\n)(?:    .*\n|\n)+",
        r"\1    the program's text\n",
        text,
        flags=re.MULTILINE,
    )


def goldens() -> list[Path]:
    folder = DATA / "golden" / "kubernetes"
    return [folder / f"{case}.yaml" for case in CASES]


def thing(kind: str, name: str, instance: str = "chat", **parts: Any) -> dict[str, Any]:
    """Return an object that is ten minutes old."""
    labels = {
        "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/name": f"{name}-model",
        "app.kubernetes.io/component": "engine",
    }
    metadata = {"name": name, "labels": labels, "creationTimestamp": "2026-11-21T08:50:00Z"}
    return {
        "apiVersion": "v1",
        "kind": kind,
        **parts,
        "metadata": {**metadata, **parts.get("metadata", {})},
    }


def pod(name: str = "chat-a", **status: Any) -> dict[str, Any]:
    """Return a pod with an engine whose startup probe allows 2400 s."""
    probe = {"periodSeconds": 5, "failureThreshold": 480}
    containers = [{"name": "engine", "startupProbe": probe}, {"name": "keep-recipes"}]
    spec = {"nodeName": "gaudi-1", "containers": containers}
    owner = {"ownerReferences": [{"kind": "ReplicaSet"}]}
    return thing("Pod", name, spec=spec, status=status, metadata=owner)


def following(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("{}$()'\"`:#&*!|>%@\\\n\t -?,[]=~^"),
        st.characters(exclude_categories=["Cs", "Cc"]),
    ),
    max_size=40,
)
