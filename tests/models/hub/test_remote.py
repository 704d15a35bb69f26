"""A model on the hub, read by its config.json and headers; the hub's client is a stand-in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import requests
from huggingface_hub import errors

from gaudi_launch import http_client
from gaudi_launch.errors import ExitCode
from gaudi_launch.models.config import read_model
from gaudi_launch.models.hub.remote import read_remote
from gaudi_launch.models.model import Model
from tests.support.scripted_hosts import failed

ID, HUB = "me/m", "https://hub.example"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 16,
}


class Hub:
    """Stand in for the hub's client: a config.json, headers or an error, and what is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[object, ...]] = []
        self.error: Exception | None = None
        self.no_weights: Exception | None = None
        (folder / "config.json").write_text(json.dumps(CONFIG))

    def head(self, url: str, seconds: float) -> None:
        self.asked.append(("head", url, seconds))

    def hf_hub_download(self, *words: str, **options: Any) -> str:
        self.asked.append((*words, options))
        if self.error is not None:
            raise self.error
        return str(self.folder / "config.json")

    def get_safetensors_metadata(self, *words: str, **options: Any) -> Any:
        self.asked.append((*words, options))
        if self.no_weights is not None:
            raise self.no_weights
        tensor = SimpleNamespace(dtype="BF16", shape=[10, 3], data_offsets=(0, 60))
        other = SimpleNamespace(dtype="BF16", shape=[10], data_offsets=(60, 80))
        unread = SimpleNamespace(dtype="BF16", shape=[2], data_offsets=(0, 4))
        return SimpleNamespace(
            files_metadata={
                "a": SimpleNamespace(tensors={"model.x": tensor, "model.y": other}),
                "b": SimpleNamespace(tensors={"model.layers.2.z": unread}),
            }
        )


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", f"{HUB}/")
    monkeypatch.setattr(http_client, "head", made.head)
    for name in ("hf_hub_download", "get_safetensors_metadata"):
        monkeypatch.setattr(huggingface_hub, name, getattr(made, name))
    return made


def sizes(model: Model) -> tuple[object, ...]:
    return model.name, model.path, model.source, model.parameters, model.weight_bytes


def test_a_model_is_read_by_its_headers(hub: Hub) -> None:
    found = read_remote(ID, "v1")
    assert sizes(found) == ("m", ID, "hub", 42, 84)
    assert (found.layers, found.heads, found.hidden_size) == (2, 2, 8)
    assert hub.asked == [
        ("head", HUB, 10),
        (ID, "config.json", {"revision": "v1"}),
        (ID, {"revision": "v1"}),
    ]
    # as from a folder, but for its place
    assert read_model(str(hub.folder)).layers == 2


@pytest.mark.parametrize(
    "error", [errors.NotASafetensorsRepoError("x"), errors.SafetensorsParsingError("x")]
)
def test_a_model_without_safetensors(hub: Hub, error: Exception) -> None:
    hub.no_weights = error
    found = read_remote(ID)
    assert found.weight_bytes is None
    assert hub.asked[1] == (ID, "config.json", {"revision": None})


def answered(kind: Callable[..., Exception], text: str = "x", status: int = 404) -> Exception:
    answer = requests.Response()
    answer.status_code = status
    return kind(text, response=answer)


def hidden(cause: Exception | None) -> Exception:
    error = errors.LocalEntryNotFoundError("hidden")
    error.__cause__ = cause
    return error


class ConnectTimeout(Exception):
    """A timeout of httpx, whose classes are not errors of the system."""


ConnectTimeout.__module__ = "httpx._exceptions"
OFFLINE = {"model": ID, "hub": HUB}
ANSWER = {"model": ID, "hub": HUB}


@pytest.mark.parametrize(
    ("error", "id", "values"),
    [
        (answered(errors.GatedRepoError), "models.gated", OFFLINE),
        (answered(errors.RepositoryNotFoundError), "models.not_on_hub", OFFLINE),
        (answered(errors.RevisionNotFoundError), "models.not_on_hub", OFFLINE),
        (errors.EntryNotFoundError("x"), "models.no_config", {"path": ID}),
        (hidden(None), "models.offline", {**OFFLINE, "why": "LocalEntryNotFoundError"}),
        (
            hidden(ConnectionRefusedError(111, "Connection refused")),
            "models.offline",
            {**OFFLINE, "why": "Connection refused"},
        ),
        (
            hidden(answered(errors.HfHubHTTPError, "  odd\n answer ", 500)),
            "models.hub_answer",
            {**ANSWER, "why": "odd answer"},
        ),
        (errors.OfflineModeIsEnabled("x"), "models.offline", {**OFFLINE, "why": "HF_HUB_OFFLINE"}),
        (
            answered(errors.HfHubHTTPError, "y" * 400, 500),
            "models.hub_answer",
            {**ANSWER, "why": "y" * 300},
        ),
        (errors.HFValidationError("x"), "models.no_folder", {"path": ID}),
        (OSError(5, "Input/output error"), "models.offline",
         {**OFFLINE, "why": "Input/output error"}),
        (ConnectTimeout("x"), "models.offline", {**OFFLINE, "why": "timed out"}),
    ],
)  # fmt: skip
def test_errors_of_the_hub(hub: Hub, error: Exception, id: str, values: dict[str, str]) -> None:
    hub.error = error
    assert failed(lambda: read_remote(ID)) == (id, ExitCode.MODEL, values, None)


def test_a_defect_is_not_hidden(hub: Hub) -> None:
    hub.error = KeyError("defect")
    with pytest.raises(KeyError):
        read_remote(ID)


def test_a_hub_that_is_not_reached_is_asked_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise requests.ConnectionError(ConnectionRefusedError(111, "Connection refused"))

    monkeypatch.setattr(http_client, "head", refuse)
    monkeypatch.setenv("HF_ENDPOINT", "https://user:secret@hub.example")
    id, code, values, _ = failed(lambda: read_remote(ID))
    assert (id, code, values["why"]) == ("models.offline", ExitCode.MODEL, "Connection refused")
    assert "secret" not in values["hub"]
    assert hub.asked == []


def test_the_usual_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "HF_ENDPOINT": ""})
    read_remote(ID)
    assert hub.asked[0] == ("head", "https://huggingface.co", 10)
