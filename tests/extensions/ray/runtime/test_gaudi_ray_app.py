"""The router of several models as clients see it; Ray itself is replaced."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.extensions.ray.engine import IN_RAY

_NAMES = ("gaudi_ray_app", "ray", "ray.serve", "ray.exceptions")


class Ended(Exception):
    """Ray's error for a replica that ended."""


class Handle:
    """A deployment: it answers with the model that was asked for, or has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answer = self

    def options(self, *, stream: bool) -> Handle:
        assert stream
        return self

    async def remote(self, asked: Any) -> AsyncIterator[Any]:
        if self.name == "gone":
            raise Ended
        yield 200, {"content-type": "text/plain"}
        yield f"{self.name} {asked.path} {sorted(asked.headers)[:1]}".encode()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of the router with a keys file, two models and one whose replica ends."""
    # they take a second to import, which every worker would spend that reads this file
    pytest.importorskip("httpx")
    client = pytest.importorskip("fastapi.testclient")
    serve, exceptions, ray = (types.ModuleType(name) for name in _NAMES[2:] + _NAMES[1:2])
    plain = {"deployment": lambda **_: lambda made: made, "ingress": lambda _: lambda made: made}
    vars(serve).update(plain)
    vars(exceptions)["RayError"] = Ended
    vars(ray)["serve"] = serve
    for name, made in zip(_NAMES[1:], (ray, serve, exceptions), strict=True):
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.delitem(sys.modules, "gaudi_ray_app", raising=False)
    monkeypatch.syspath_prepend(str(IN_RAY))
    app = importlib.import_module("gaudi_ray_app")
    keys = tmp_path / "keys"
    keys.write_text("alice sk-a\n")
    models = [{"names": [name], "handle": name} for name in ("chat", "text", "gone")]
    handles = {name: Handle(name) for name in ("chat", "text", "gone")}
    router = app.Router({"models": models, "keys_file": str(keys)}, **handles)
    # Serve calls the routes with the replica as their first argument
    for route in app.stack_api.routes:
        call = route.dependant.call
        route.dependant.call = bound(call, router)
        route.dependant.query_params.clear()
    yield client.TestClient(app.stack_api, headers={"authorization": "Bearer sk-a"})
    sys.modules.pop("gaudi_ray_app", None)


def bound(call: Any, router: Any) -> Any:
    async def route(**values: Any) -> Any:
        return await call(router, **values)

    return route


def test_the_field_model_chooses_the_engine_and_no_engine_gets_the_key(client: Any) -> None:
    answer = client.post("/v1/chat/completions", json={"model": "text"})
    assert (answer.status_code, answer.text) == (200, "text v1/chat/completions ['accept']")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", {"model": "nope"}, 404),
        ("POST", "/v1/chat/completions", {}, 400),
        ("POST", "/v1/chat/completions", {"model": "gone"}, 503),
        ("POST", "/sleep", {"model": "chat"}, 404),
        ("GET", "/v1/chat/completions", None, 404),
        ("GET", "/metrics", None, 404),
        ("GET", "/docs", None, 404),
        ("GET", "/openapi.json", None, 404),
        ("GET", "/v1/models/nope", None, 404),
    ],
)
def test_what_is_refused_is_an_openai_error(
    client: Any, method: str, path: str, body: Any, status: int
) -> None:
    answer = client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)


def test_models_are_listed_and_shown_one_by_one(client: Any) -> None:
    listed = client.get("/v1/models").json()["data"]
    assert [each["id"] for each in listed] == ["chat", "text", "gone"]
    assert client.get("/v1/models/text").json() == listed[1]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/chat", "/docs", "/metrics"])
def test_nothing_but_health_is_shown_without_a_key(client: Any, path: str) -> None:
    assert client.get(path, headers={"authorization": "Bearer sk-b"}).status_code == 401
    assert client.get("/health", headers={"authorization": ""}).status_code == 200
