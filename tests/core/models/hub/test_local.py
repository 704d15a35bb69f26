"""Copies of a model in the folders of this program and of the hubs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.models.hub.local import find_local, folder_for
from gaudi_launch.core.models.hub.record import RECORD, Fetched, write_record
from tests.support.shards import shard

REPO = "me/m"


@pytest.fixture(autouse=True)
def homes(own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "MODELSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)


def copy(folder: Path, auto_map: object = None) -> Path:
    folder.mkdir(parents=True)
    document = {} if auto_map is None else {"auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps(document))
    shard(folder / "model.safetensors", {"w": ("BF16", [2], 4)})
    return folder


def pulled(revision: str = "", whole: bool = True) -> Path:
    folder = copy(folder_for(REPO, revision))
    size = (folder / "model.safetensors").stat().st_size
    files = {"model.safetensors": (size, "", 0)}
    write_record(folder, Fetched(REPO, "hf", "main", whole, files))
    return folder


def snapshot(home: Path, commit: str = "c1", reference: str | None = "main") -> Path:
    base = home / "models--me--m"
    if reference is not None:
        (base / "refs").mkdir(parents=True, exist_ok=True)
        (base / "refs" / reference).write_text(f"{commit}\n")
    return copy(base / "snapshots" / commit)


def test_a_pulled_copy_comes_first(tmp_path: Path) -> None:
    assert find_local(REPO) is None
    theirs = snapshot(tmp_path / "home/.cache/huggingface/hub")
    assert find_local(REPO) == theirs
    pulled("v1")
    assert find_local(REPO) == theirs
    ours = pulled()
    weights = ours / "model.safetensors"
    content = weights.read_bytes()
    # a file that is shorter or gone, or no record: it is not whole
    for damage in (
        lambda: weights.write_bytes(content[1:]),
        weights.unlink,
        (ours / RECORD).unlink,
    ):
        weights.write_bytes(content)
        assert find_local(REPO) == ours
        damage()
        assert find_local(REPO) == theirs


@pytest.mark.parametrize(
    ("auto_map", "files", "enough"),
    [
        (None, [], True),
        ({"AutoModel": "modeling.M"}, [], False),
        ({"AutoModel": "modeling.M"}, ["modeling"], True),
        ({"A": "modeling.M", "B": ["tokens.T", None]}, ["modeling"], False),
        ({"A": "modeling.M", "B": ["tokens.T", None]}, ["modeling", "tokens"], True),
        ({"A": "other/code--modeling.M"}, [], True),
        ({"A": "M"}, [], True),
        ([], [], True),
    ],
)
def test_code_that_a_copy_must_have(auto_map: object, files: list[str], enough: bool) -> None:
    folder = folder_for(REPO)
    copy(folder, auto_map)
    for name in files:
        (folder / f"{name}.py").touch()
    write_record(folder, Fetched(REPO, "hf", "main", True, {}))
    assert find_local(REPO) == folder
    assert find_local(REPO, code=True) == (folder if enough else None)


def test_a_cached_copy_must_have_the_code_too(tmp_path: Path) -> None:
    folder = tmp_path / "home/.cache/modelscope/models/me/m"
    copy(folder, {"AutoModel": "modeling.M"})
    assert (find_local(REPO), find_local(REPO, code=True)) == (folder, None)
