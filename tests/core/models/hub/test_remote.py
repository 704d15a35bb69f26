"""A model on a hub, read by its config.json and headers; the hub is a server of this machine."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.models.config import read_model
from gaudi_launch.core.models.hub.remote import read_remote
from gaudi_launch.core.models.model import Model
from tests.support.local_hub import Hub
from tests.support.scripted_hosts import failed

ID = "me/small"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 16,
}


def shard(**tensors: list[int]) -> bytes:
    """Return a safetensors file of BF16 tensors by their shapes; a long header where padded."""
    header: dict[str, object] = {"__metadata__": {"padding": " " * 70_000}}
    at = 0
    for name, shape in tensors.items():
        size = 2
        for each in shape:
            size *= each
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


PARTS = {
    "a.safetensors": shard(**{"model.x": [10, 3], "model.y": [10]}),
    # a layer after the last one is not loaded
    "b.safetensors": shard(**{"model.layers.2.z": [2]}),
}
SIZE = sum(len(content) for content in PARTS.values())
INDEX = {
    "metadata": {"total_size": 84},
    "weight_map": {
        "model.x": "a.safetensors",
        "model.y": "a.safetensors",
        "model.layers.2.z": "b.safetensors",
    },
}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    **PARTS,
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[Hub]:
    with Hub(dict(FILES)) as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield made


def sizes(model: Model) -> tuple[object, ...]:
    return model.parameters, model.weight_bytes, model.unloaded_bytes, model.layers


def test_a_model_is_read_by_its_headers_as_from_its_folder(hub: Hub, tmp_path: Path) -> None:
    hub.files["hf_quant_config.json"] = b'{"quantization": {"quant_algo": "NVFP4"}}'
    found = read_remote(ID)
    assert (found.name, found.path, found.source) == ("small", ID, "hub")
    for name, content in hub.files.items():
        (tmp_path / name).write_bytes(content)
    folder = read_model(str(tmp_path))
    stored = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert found.config == folder.config == {**CONFIG, "quantization_config": stored}
    assert found.quantization == folder.quantization == "modelopt"
    assert sizes(found) == sizes(folder) == (42, SIZE, 4, 2)
    assert sum(len(range_) > 0 for _, range_ in hub.asked) == 4


def test_what_was_read_is_kept(hub: Hub) -> None:
    first = read_remote(ID)
    asked = list(hub.asked)
    assert (read_remote(ID), hub.asked) == (first, asked)
    # also while the hub does not answer, however old it is
    (kept,) = (Path(os.environ["XDG_CACHE_HOME"]) / "gaudi-launch" / "hub").glob("me--small*.json")
    os.utime(kept, (0, 0))
    hub.trouble = "always_busy"
    assert read_remote(ID) == first
    assert len(hub.asked) > len(asked)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # one file without an index
        (
            {"model.safetensors": PARTS["a.safetensors"]},
            (40, len(PARTS["a.safetensors"]), 0, 2),
        ),
        # a shard that is not there, or not one: the index has the bytes
        ({**FILES, "b.safetensors": b""}, (None, 84, 0, 2)),
        ({**FILES, "b.safetensors": struct.pack("<Q", 1 << 60) + bytes(9)}, (None, 84, 0, 2)),
        ({**FILES, "b.safetensors": struct.pack("<Q", 3) + b"[1]"}, (None, 84, 0, 2)),
        # pickled weights
        ({"pytorch_model.bin": b"x"}, (None, None, 0, 2)),
    ],
)
def test_weights_that_the_headers_do_not_tell(
    hub: Hub, change: dict[str, bytes], expected: tuple[object, ...]
) -> None:
    hub.files = {"config.json": FILES["config.json"], **change}
    assert sizes(read_remote(ID)) == expected


def test_a_revision_and_the_token_are_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert read_remote(ID, "v1").layers == 2
    assert hub.tokens == {"Bearer hf_secret"}


def test_modelscope_has_what_hugging_face_cannot_give(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"HF_TOKEN": "hf_secret", "MODELSCOPE_API_TOKEN": "ms_secret"}
    for name, value in {"HF_ENDPOINT": "http://127.0.0.1:9", **tokens}.items():
        monkeypatch.setenv(name, value)
    assert sizes(read_remote(ID)) == (42, SIZE, 4, 2)
    # the token of one hub is not for another
    assert hub.tokens == {"Bearer ms_secret"}


@pytest.mark.parametrize(
    ("trouble", "files", "id"),
    [
        ("gated", FILES, "pull.gated"),
        ("token", FILES, "pull.token"),
        ("always_busy", FILES, "models.hub_answer"),
        ("", {}, "models.not_on_hub"),
        ("", {"config.json": b"{"}, "models.bad_config"),
        ("", {"config.json": b"[]"}, "models.bad_config"),
    ],
)
def test_answers_of_the_hub_are_sentences(
    hub: Hub, trouble: str, files: dict[str, bytes], id: str
) -> None:
    hub.trouble, hub.files = trouble, files
    found, code, values, _ = failed(lambda: read_remote("me/none" if not files else ID))
    assert (found, code) == (id, ExitCode.MODEL)
    assert values.get("source", hub.url) == hub.url


def test_a_hub_that_is_not_reached_is_not_asked_again_for_a_minute(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT"):
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:9")
    id, code, values, _ = failed(lambda: read_remote(ID))
    assert (id, code, values["why"]) == ("models.offline", ExitCode.MODEL, "Connection refused")
    assert "secret" not in values["source"]
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "gaudi-launch" / "hub"
    (silence,) = folder.glob("unreachable-*")
    silence.write_text("remembered")
    assert failed(lambda: read_remote(ID))[2]["why"] == "remembered"
    os.utime(silence, (time.time() - 61,) * 2)
    assert failed(lambda: read_remote(ID))[2]["why"] == "Connection refused"


def test_a_hub_that_hangs_is_left_after_its_time(hub: Hub) -> None:
    hub.trouble = "hang"
    begin = time.monotonic()
    id, _, values, _ = failed(lambda: read_remote(ID, seconds=0.5))
    assert (id, values["why"]) == ("models.offline", "timed out")
    assert time.monotonic() - begin < 5
    asked = len(hub.asked)
    assert failed(lambda: read_remote(ID))[0] == "models.offline"
    assert len(hub.asked) == asked


def test_offline_mode_asks_no_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    id, _, values, _ = failed(lambda: read_remote(ID))
    assert (id, values["why"], hub.asked) == ("models.offline", "HF_HUB_OFFLINE", [])
