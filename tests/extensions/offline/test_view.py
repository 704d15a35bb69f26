"""Packs for hosts without a network: the finished one, its list, and what was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.extensions.offline import view as offline
from gaudi_launch.extensions.offline.case import InstalledPack
from gaudi_launch.extensions.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackFile,
    PackModel,
    PackTarget,
)
from tests.support.views import for_programs, views

pytestmark = pytest.mark.usefixtures("plain_english")

PACK = Path("/packs/chat")
MANIFEST = Manifest(
    launcher="0.1.0",
    created="2026-11-20",
    engine=PackEngine("vllm-fork@1.21", "1.21.0", "gaudi"),
    model=PackModel("Qwen3-8B", "models/qwen", "Qwen/Qwen3-8B", "abc"),
    target=PackTarget("3.10", "x86_64", "manylinux_2_28_x86_64"),
    recipes=("k1",),
    files=(
        PackFile("wheels/a.whl", 3 << 20, "aa"),
        PackFile("wheels/b.whl", 1 << 20, "bb"),
        PackFile("model/weights.safetensors", 3 << 30, "cc"),
        PackFile("notes/readme", 10, "dd"),
    ),
)
OWN = Manifest(
    launcher="0.1.0",
    created="2026-11-20",
    engine=PackEngine("cpu", "0.11", "anywhere"),
    model=PackModel("mine", "models/mine"),
    target=PackTarget("3.11", "aarch64"),
)


def installed(manifest: Manifest, *, python: str | None) -> InstalledPack:
    skipped = (("k2", "another driver"), ("k3", "it exists"))
    return InstalledPack(manifest, python, None, Path("/data/qwen"), ("k1", "k4"), skipped, 2)


def test_a_pack_and_what_is_installed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "offline",
        [
            lambda: offline.show_packed(PACK, MANIFEST, False),
            lambda: offline.show_pack(PACK, MANIFEST, False),
            lambda: offline.show_pack(PACK, OWN, False),
            lambda: offline.show_installed(installed(MANIFEST, python="/v/bin/python"), False),
            lambda: offline.show_installed(
                InstalledPack(OWN, None, None, Path("/data/mine"), (), (), 0), False
            ),
        ],
    )


DOCUMENT = {
    "schema": 1,
    "pack": "/packs/chat",
    "launcher": "0.1.0",
    "created": "2026-11-20",
    "engine": {
        "name": "vllm-fork@1.21",
        "version": "1.21.0",
        "kind": "gaudi",
        "wheels": True,
        "image": "",
        "image_file": "",
    },
    "model": {
        "name": "Qwen3-8B",
        "folder": "models/qwen",
        "repo": "Qwen/Qwen3-8B",
        "revision": "abc",
        "demo": False,
    },
    "target": {"python": "3.10", "machine": "x86_64", "platform": "manylinux_2_28_x86_64"},
    "recipes": ["k1"],
    "parts": {
        "wheels": {"files": 2, "bytes": 4 << 20},
        "model": {"files": 1, "bytes": 3 << 30},
        "notes": {"files": 1, "bytes": 10},
    },
    "bytes": (4 << 20) + (3 << 30) + 10,
}


def test_a_pack_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    packed = for_programs(capsys, lambda: offline.show_packed(PACK, MANIFEST, True))
    assert packed == DOCUMENT
    assert for_programs(capsys, lambda: offline.show_pack(PACK, MANIFEST, True)) == {
        **DOCUMENT,
        "files": [
            {"path": "wheels/a.whl", "size": 3 << 20, "sha256": "aa"},
            {"path": "wheels/b.whl", "size": 1 << 20, "sha256": "bb"},
            {"path": "model/weights.safetensors", "size": 3 << 30, "sha256": "cc"},
            {"path": "notes/readme", "size": 10, "sha256": "dd"},
        ],
    }


def test_what_was_installed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    done = installed(MANIFEST, python="/v/bin/python")
    assert for_programs(capsys, lambda: offline.show_installed(done, True)) == {
        "schema": 1,
        "engine": "vllm-fork@1.21",
        "python": "/v/bin/python",
        "image": None,
        "model": "/data/qwen",
        "recipes": ["k1", "k4"],
        "skipped": [{"key": "k2", "why": "another driver"}, {"key": "k3", "why": "it exists"}],
        "measurements": 2,
        "command": "gaudi-launch serve Qwen/Qwen3-8B --python /v/bin/python",
    }
