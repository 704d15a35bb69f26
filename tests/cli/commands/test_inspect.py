"""``inspect`` as a user runs it: folders, and a small hub on this machine with the real client."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.shards import index, shard
from tests.support.waiting import GENEROUS

pytestmark = pytest.mark.usefixtures("plain_english")

CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "vocab_size": 32000,
}  # fmt: skip


def folder(tmp_path: Path, config: dict[str, Any] = CONFIG) -> Path:
    path = tmp_path / "my-model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = folder(tmp_path)
    size = shard(
        path / "1.safetensors", {"a": ("BF16", [64, 64], 8192), "a.scales": ("F16", [64], 128)}
    )
    shard(path / "2.safetensors", {"b": ("BF16", [64], 128)}, cut=4)
    index(path, "1.safetensors", "2.safetensors", "3.safetensors")
    assert run(["inspect", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["weight_bytes"] >= size
    expected = {
        "schema": 1, "path": str(path), "name": "my-model", "source": "config.json",
        "parameters": 4160, "architecture": "MixtralForCausalLM", "model_type": "mixtral",
        "dtype": "bfloat16", "moe": True, "experts": 8,
        "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "mla_rank": None,
        "max_position_embeddings": 32768, "remote_code": False, "multimodal": [],
        "files_missing": ["2.safetensors (truncated)", "3.safetensors"],
        "kv_bytes_per_token": 131072, "profile": "mixtral-8x7b",
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected


def test_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = folder(tmp_path)
    index(path, "model-00001-of-00001.safetensors")
    assert run(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"model: {path}",
        "architecture: MixtralForCausalLM / mixtral",
        "parameters: 46.703e9 (46702792704)",
        "weights: none in the folder",
        "data type: bfloat16",
        "layers: 32",
        "heads: 32, 8 for keys and values, of 128",
        "experts: 8",
        "hidden size: 4096",
        "context: 32768",
        "vocabulary: 32000",
        "KV cache: 131072 bytes per token in bfloat16 on one card (16 MiB per block)",
        "profile: mixtral-8x7b",
        "missing: model-00001-of-00001.safetensors",
    ]


class Hub(BaseHTTPRequestHandler):
    """What the hub answers for four models: public/model, gated/model, broken/model, and none
    else."""

    weights = b""

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith(("/api/models/gated/", "/gated/")):
            return self._send(403, b"{}", body, {"X-Error-Code": "GatedRepo"})
        if path.startswith(("/api/models/broken/", "/broken/")):
            return self._send(418, b"{}", body, {})
        if path == "/":
            return self._send(200, b"hub", body, {})
        files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": self.weights}
        name = path.rsplit("/", 1)[-1]
        if path.startswith("/public/model/resolve/main/"):
            if name not in files:
                return self._send(404, b"{}", body, {"X-Error-Code": "EntryNotFound"})
            headers = {"ETag": '"abc"', "X-Repo-Commit": "c" * 40, "Accept-Ranges": "bytes"}
            return self._send(200, files[name], body, headers)
        if path.startswith("/api/models/public/model"):
            info = {
                "_id": "1",
                "id": "public/model",
                "sha": "c" * 40,
                "siblings": [{"rfilename": n} for n in files],
            }
            if self.command == "POST" or "/tree/" in path or "/paths-info/" in path:
                found = [
                    {"type": "file", "path": n, "size": len(b), "oid": "1"}
                    for n, b in files.items()
                ]
                return self._send(200, json.dumps(found).encode(), body, {})
            return self._send(200, json.dumps(info).encode(), body, {})
        return self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})

    def _send(self, code: int, content: bytes, body: bool, headers: dict[str, str]) -> None:
        asked = self.headers.get("Range", "")
        if code == 200 and asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            content = content[int(first) : int(last or len(content)) + 1]
            code = 206
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def do_GET(self) -> None:
        self._answer(True)

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(True)

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    tensors = {
        "a": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]},
        # eight weights of four bits in each number, as awq packs them
        "b.qweight": {"dtype": "I32", "shape": [8, 8], "data_offsets": [8192, 8448]},
    }
    header = json.dumps(tensors).encode()
    Hub.weights = struct.pack("<Q", len(header)) + header + b"\0" * 8448
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(endpoint: str, tmp_path: Path, model: str) -> tuple[int, dict[str, Any]]:
    """A process of its own: the hub's client reads HF_ENDPOINT when it is imported."""
    import os

    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    words = [sys.executable, "-m", "gaudi_launch", "inspect", model, "--json"]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=GENEROUS, check=False
    )
    shown: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, shown


def test_a_model_on_the_hub_by_its_headers(hub: str, tmp_path: Path) -> None:
    code, shown = asked(hub, tmp_path, "public/model")
    names = ("source", "path", "parameters", "weight_bytes", "experts", "profile")
    assert (code, {name: shown.get(name) for name in names}) == (
        0,
        {
            "source": "hub",
            "path": "public/model",
            "parameters": 4096 + 512,
            "weight_bytes": 8448,
            "experts": 8,
            "profile": "mixtral-8x7b",
        },
    )


@pytest.mark.parametrize(
    ("model", "id"),
    [
        ("gated/model", "models.gated"),
        ("no/model", "models.not_on_hub"),
        ("broken/model", "models.hub_answer"),
    ],
)
def test_what_the_hub_refuses_is_a_sentence(hub: str, tmp_path: Path, model: str, id: str) -> None:
    code, shown = asked(hub, tmp_path, model)
    assert (code, shown["error"]["id"]) == (5, id)
    assert model in shown["error"]["message"]
    assert hub in shown["error"]["message"]


def test_no_hub_is_a_sentence(tmp_path: Path) -> None:
    code, shown = asked("http://127.0.0.1:9", tmp_path, "public/model")
    assert (code, shown["error"]["id"]) == (5, "models.offline")


@pytest.mark.parametrize("path", ["/no/such/folder", "", ".", "~/nothing/at/all", "a\nb"])
def test_what_is_no_model_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str
) -> None:
    code = run(["inspect", path])
    out, err = capsys.readouterr()
    assert (code, out) == (5, "")
    assert err.startswith("gaudi-launch: ")
