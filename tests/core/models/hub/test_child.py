"""The process of a pull, called here: what it lists, fetches, verifies and answers."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.models.hub import child
from gaudi_launch.core.models.hub.file_choice import PARTS
from gaudi_launch.core.models.hub.hub_error import HubError, classify, reason_of
from tests.support.local_hub import REVISION, Hub

WEIGHTS = b"weights"
DIGEST = f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
EMPTY = "blob:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
BRACES = "blob:9e26dfeeb6e641a33dae4961196235bdb965b21b"
LARGE = "deep/x.safetensors"
REQUEST = {"source": "hf", "repo": "me/small", "repo_type": "model", "revision": REVISION}


class AnsweredError(Exception):
    """An error with the status of an answer."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.response = SimpleNamespace(status_code=status)


def named(name: str, base: type[Exception] = Exception, *status: int) -> Exception:
    """Return an error of a library, which is known by its name."""
    made: Exception = type(name, (base,), {})("x", *status)
    return made


def caused(error: Exception, by: BaseException) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (HubError("disk", "x"), "disk", "x"),
        (OSError(28, "No space left"), "disk", "[Errno 28] No space left"),
        (OSError(122, "Quota"), "disk", "[Errno 122] Quota"),
        (named("GatedRepoError"), "gated", "x"),
        (named("OfflineModeIsEnabled"), "offline_mode", "x"),
        (named("RepositoryNotFoundError"), "no_repo", "x"),
        # the Hub's answer to a name that is not there, without a token
        (named("RepositoryNotFoundError", AnsweredError, 401), "no_repo", "x"),
        (named("NotExistError"), "no_repo", "x"),
        (named("HubRepoNotFoundError"), "no_repo", "x"),
        (named("NotFoundError"), "no_repo", "x"),
        (named("RevisionNotFoundError"), "no_revision", "x"),
        (AnsweredError("no such Revision", 404), "no_revision", "no such Revision"),
        (AnsweredError("revision", 403), "gated", "revision"),
        (AnsweredError("x", 401), "gated", "x"),
        (AnsweredError("x", 404), "no_repo", "x"),
        (AnsweredError("x", 429), "busy", "x"),
        (AnsweredError("x", 500), "other", "AnsweredError: x"),
        (named("ConnectTimeout"), "offline", "timed out"),
        (named("MaxRetryError"), "offline", "MaxRetryError"),
        (named("ResolveError"), "offline", "ResolveError"),
        (named("NetworkError"), "offline", "NetworkError"),
        (named("RemoteDisconnectedError"), "offline", "RemoteDisconnectedError"),
        (named("ServerOffline"), "offline", "ServerOffline"),
        (ConnectionRefusedError(111, "refused"), "offline", "refused"),
        (caused(ValueError("x"), ConnectionResetError(104, "reset")), "offline", "reset"),
        (ValueError("x"), "other", "ValueError: x"),
    ],
)
def test_the_kind_of_an_error(error: Exception, kind: str, detail: str) -> None:
    found = classify(error)
    assert (found.kind, found.detail) == (kind, detail)


def test_a_long_hash_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    child._Hashing("x")(5)
    assert json.loads(capsys.readouterr().out) == {"hashing": "x", "at": 5}


def module(monkeypatch: pytest.MonkeyPatch, name: str, **parts: Any) -> None:
    made = types.ModuleType(name)
    vars(made).update(parts)
    monkeypatch.setitem(sys.modules, name, made)


Rows = Callable[..., list[Any]]


def modelscope(monkeypatch: pytest.MonkeyPatch, rows: Rows, inner: Any = None) -> None:
    class HubApi:
        _api = inner

        def get_model_files(self, repo: str, **options: Any) -> list[Any]:
            return rows(repo, **options)

    for name in ("modelscope", "modelscope.hub"):
        module(monkeypatch, name)
    module(monkeypatch, "modelscope.hub.api", HubApi=HubApi)


def test_a_list_of_modelscope(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def rows(*words: Any, **options: Any) -> list[Any]:
        asked.append((*words, options))
        return [
            {"Type": "tree", "Path": "deep"},
            {"Type": "blob", "Path": "a", "Size": 1, "Sha256": "aa"},
            {"Path": "b", "Size": 2},
        ]

    modelscope(monkeypatch, rows)
    request = {"repo": "me/m", "repo_type": "model", "revision": ""}
    files = [
        {"path": "a", "size": 1, "digest": "sha256:aa"}, {"path": "b", "size": 2, "digest": ""},
    ]  # fmt: skip
    assert child._LIST["modelscope"](request) == {"revision": "master", "files": files}
    assert asked == [("me/m", {"revision": "master", "recursive": True})]


def test_a_ring_of_causes_ends() -> None:
    one, two = ValueError("1"), KeyError("2")
    one.__cause__, two.__cause__ = two, one
    assert reason_of(one) == "ValueError"


@dataclass
class Process:
    """One run of `main`: the request it reads, and its answers and notes."""

    monkeypatch: pytest.MonkeyPatch

    def __call__(self, request: dict[str, Any]) -> tuple[list[Any], str, int]:
        out, notes = io.StringIO(), io.StringIO()
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request) + "\n"))
        self.monkeypatch.setattr(sys, "stdout", out)
        self.monkeypatch.setattr(sys, "stderr", notes)
        status = 0
        try:
            child.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return [json.loads(line) for line in out.getvalue().splitlines()], notes.getvalue(), status


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return Process(monkeypatch)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Let the library of Hugging Face ask a hub on this machine."""
    with Hub({"empty": b"", "config.json": b"{}", LARGE: WEIGHTS}) as running:
        files = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        # what the library reads of the environment when it is imported
        for name, value in (
            ("ENDPOINT", running.url),
            ("HUGGINGFACE_CO_URL_TEMPLATE", files),
            ("HF_HUB_OFFLINE", False),
        ):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield running


def done(target: Path, path: str, digest: str, **more: Any) -> dict[str, Any]:
    status = (target / path).stat()
    return {
        "done": path, "size": status.st_size, "digest": digest, "mtime": status.st_mtime_ns, **more,
    }  # fmt: skip


def test_what_is_listed_is_fetched_once_the_smallest_first(
    process: Process, hub: Hub, tmp_path: Path
) -> None:
    files = [
        {"path": "empty", "size": 0, "digest": EMPTY},
        {"path": "config.json", "size": 2, "digest": BRACES},
        {"path": LARGE, "size": 7, "digest": DIGEST},
    ]
    listed = process({**REQUEST, "do": "list", "revision": ""})
    assert listed == ([{"revision": REVISION, "files": files}], "", 0)
    assert [os.environ[f"HF_HUB_DISABLE_{name}"] for name in ("TELEMETRY", "XET")] == ["1", "1"]
    # a digest that is not known is not compared
    unknown = {"path": "config.json", "size": 2, "digest": ""}
    fetch = {**REQUEST, "do": "fetch", "target": str(tmp_path)}
    found = process({**fetch, "files": [files[2], unknown, files[0]]})
    rows = (("empty", EMPTY), ("config.json", ""), (LARGE, DIGEST))
    assert found == ([done(tmp_path, *row) for row in rows], "", 0)
    assert {path: (tmp_path / path).read_bytes() for path in hub.files} == hub.files
    assert [path for path in (tmp_path / PARTS).rglob("*") if path.is_file()] == []
    assert hub.asked == [("config.json", ""), (LARGE, "")]
    in_place = [done(tmp_path, *row, in_place=True) for row in (rows[0], rows[2])]
    assert process({**fetch, "files": [files[2], files[0]]}) == (in_place, "", 0)
    assert len(hub.asked) == 2


@pytest.mark.parametrize(
    ("trouble", "part", "there", "asked"),
    [
        ("", b"wei", b"", ["bytes=3-"]),
        ("", b"longer than it", b"", [""]),
        ("", b"whatever", b"another", [""]),
        # the content is verified, and fetched once more
        ("", b"another", b"", [""]),
        ("lie_once", b"", b"cut", ["", ""]),
        ("lie", b"", b"", ["", ""]),
    ],
)
def test_a_file_is_resumed_and_what_differs_is_fetched_once_more(
    process: Process,
    hub: Hub,
    tmp_path: Path,
    trouble: str,
    part: bytes,
    there: bytes,
    asked: list[str],
) -> None:
    hub.trouble = trouble
    for path, content in ((tmp_path / LARGE, there), (tmp_path / PARTS / f"{LARGE}.part", part)):
        path.parent.mkdir(parents=True)
        if content:
            path.write_bytes(content)
    files = [{"path": LARGE, "size": 7, "digest": DIGEST}]
    found = process({**REQUEST, "do": "fetch", "target": str(tmp_path), "files": files})
    assert hub.asked == [(LARGE, each) for each in asked]
    if trouble == "lie":
        assert found == ([{"error": "changed", "detail": LARGE}], "", 1)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    else:
        assert found == ([done(tmp_path, LARGE, DIGEST)], "", 0)
        assert (tmp_path / LARGE).read_bytes() == WEIGHTS


def test_an_error_is_an_answer(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: dict[str, Any]) -> Any:
        raise HubError("busy", "x" * 3000)

    monkeypatch.setitem(child._LIST, "hf", fail)
    found = process({"do": "list", "source": "hf"})
    assert found == ([{"error": "busy", "detail": "x" * 2000}], "", 1)


def test_a_list_of_a_newer_modelscope(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def listed(*words: Any, **options: Any) -> list[Any]:
        asked.append((*words, options))
        return [
            SimpleNamespace(type="tree", path="deep"),
            SimpleNamespace(type="blob", path="a", size=1, sha256="aa"),
            SimpleNamespace(path="b", size=2),
        ]

    modelscope(monkeypatch, lambda *_, **__: [], SimpleNamespace(list_repo_files=listed))
    kinds = SimpleNamespace(DATASET="dataset!", MODEL="model!")
    module(monkeypatch, "modelscope_hub")
    module(monkeypatch, "modelscope_hub.constants", RepoType=kinds)
    files = [
        {"path": "a", "size": 1, "digest": "sha256:aa"}, {"path": "b", "size": 2, "digest": ""},
    ]  # fmt: skip
    for kind in ("model", "dataset"):
        request = {"repo": "me/m", "repo_type": kind, "revision": "v1"}
        assert child._LIST["modelscope"](request) == {"revision": "v1", "files": files}
    options = {"revision": "v1", "recursive": True}
    assert asked == [("me/m", "model!", options), ("me/m", "dataset!", options)]


def test_a_transfer_of_modelscope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[object, ...]] = []

    def download(name: str) -> Callable[..., str]:
        def take(*words: Any, **options: Any) -> str:
            asked.append((name, *words, options))
            (tmp_path / "got").write_bytes(name.encode())
            return str(tmp_path / "got")

        return take

    for name in ("modelscope", "modelscope.hub"):
        module(monkeypatch, name)
    module(
        monkeypatch,
        "modelscope.hub.file_download",
        model_file_download=download("model"),
        dataset_file_download=download("dataset"),
    )
    part = tmp_path / "x.part"
    for kind in ("model", "dataset"):
        request = {"repo": "me/m", "repo_type": kind, "revision": "v1"}
        child._FETCH["modelscope"](request, "x", 5, part)
        assert part.read_bytes() == kind.encode()
    options = {"revision": "v1", "local_dir": str(tmp_path)}
    assert asked == [("model", "me/m", "x", options), ("dataset", "me/m", "x", options)]
