"""Files of a repository: which of them serving needs, their digests, and the record."""

from __future__ import annotations

import hashlib
import json
import os
import types
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.models.hub import file_choice
from gaudi_launch.models.hub.file_choice import (
    PARTS,
    RECORD,
    Fetched,
    RemoteFile,
    choose,
    digest_of,
    read_record,
    safe,
    write_record,
)


def chosen(*paths: str, **options: bool) -> list[str]:
    files = [RemoteFile(path, 1) for path in paths]
    return [file.path for file in choose(files, **options)]


@pytest.mark.parametrize(
    "path",
    [
        *(f"model.{end}" for end in ("h5", "msgpack", "ot", "onnx", "onnx_data", "gguf", "ggml")),
        *(f"x.{end}" for end in ("tflite", "mlmodel", "png", "jpg", "jpeg", "gif", "mp4", "pdf")),
        *(".gitattributes", ".gitignore", "README.md", "LICENSE", "LICENSE.txt", "x.index"),
        *(f"{name}/config.json" for name in ("onnx", "original", "metal", "openvino", "coreml")),
        *(f"{name}/config.json" for name in ("figures", "assets", "runs")),
    ],
)
def test_files_of_other_programs_are_left_out(path: str) -> None:
    needed = ["config.json", "deep/tokenizer.json"]
    assert chosen(path, *needed) == needed
    assert chosen(path, *needed, everything=True) == sorted([path, *needed])


def test_weights_are_fetched_once() -> None:
    pickles = ["deep/y.pt", "pytorch_model.bin", "pytorch_model.bin.index.json", "z.pth"]
    assert chosen(*pickles) == pickles
    shard = "model-1-of-2.safetensors"
    whole = "consolidated.safetensors"
    assert chosen(*pickles, whole) == [whole]
    assert chosen(*pickles, whole, shard) == [shard]


def test_code_is_fetched_only_where_it_is_wanted() -> None:
    assert chosen("a.py", "b.json") == ["b.json"]
    assert chosen("a.py", "b.json", code=True) == ["a.py", "b.json"]


@pytest.mark.parametrize("path", ["config.json", "deep/x", f"deep/{RECORD}", "..x"])
def test_paths_below_a_folder(path: str) -> None:
    assert safe(path)


@pytest.mark.parametrize(
    "path", ["", ".", "/etc/x", "../x", "a/../x", RECORD, PARTS, f"{PARTS}/x", ".gaudi-launch.lock"]
)
def test_paths_that_must_not_be_written(path: str) -> None:
    assert not safe(path)


def test_digests_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    content = bytes(3 << 20)
    path.write_bytes(content)
    assert digest_of(path, "sha256") == f"sha256:{hashlib.sha256(content).hexdigest()}"
    header = f"blob {len(content)}\0".encode()
    assert digest_of(path, "blob") == f"blob:{hashlib.sha1(header + content).hexdigest()}"
    # it reports every five seconds
    seconds = iter([0.0, 5.0, 5.1, 5.1, 10.0])
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(file_choice, "time", clock)
    told: list[int] = []
    digest_of(path, "sha256", told.append)
    assert told == [2 << 20]


RECORDED = Fetched("me/m", "hf", "main", True, {"a": (3, "sha256:1", 5)})


def test_a_record_is_read_again(tmp_path: Path) -> None:
    write_record(tmp_path, RECORDED)
    assert read_record(tmp_path) == RECORDED
    assert [path.name for path in tmp_path.iterdir()] == [RECORD]
    document = json.loads((tmp_path / RECORD).read_text())
    assert document["schema"] == 1
    (tmp_path / RECORD).write_text(json.dumps({**document, "whole": 1}))
    assert read_record(tmp_path) == replace(RECORDED, whole=False)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"repo": "x", "source": "x", "revision": "x", "whole": true,'
             ' "files": {"a": [1]}}']
)  # fmt: skip
def test_a_damaged_record_is_none(tmp_path: Path, text: str) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / RECORD).write_text(text)
    assert read_record(tmp_path) is None


def test_verified_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 5))
    file = RemoteFile("a", 3, "sha256:1")
    assert RECORDED.has(tmp_path, file) and RECORDED.intact(tmp_path)
    assert not RECORDED.has(tmp_path, replace(file, digest="sha256:2"))
    assert not RECORDED.has(tmp_path, replace(file, size=4))
    assert not RECORDED.has(tmp_path, replace(file, path="b"))
    assert not replace(RECORDED, files={}).has(tmp_path, file)
    # cut, with the same time
    path.write_bytes(b"ab")
    os.utime(path, ns=(5, 5))
    assert not RECORDED.has(tmp_path, file) and not RECORDED.intact(tmp_path)
    path.unlink()
    assert not RECORDED.has(tmp_path, file) and not RECORDED.intact(tmp_path)
    path.write_bytes(b"abc")
    assert not RECORDED.has(tmp_path, file) and RECORDED.intact(tmp_path)
