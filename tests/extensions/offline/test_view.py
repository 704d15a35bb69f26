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


def test_a_pack_and_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    done = installed(MANIFEST, python="/v/bin/python")
    shows = (
        lambda: offline.show_packed(PACK, MANIFEST, True),
        lambda: offline.show_pack(PACK, MANIFEST, True),
        lambda: offline.show_installed(done, True),
    )
    views(
        capsys,
        "offline",
        [
            lambda: offline.show_packed(PACK, MANIFEST, False),
            lambda: offline.show_pack(PACK, MANIFEST, False),
            lambda: offline.show_pack(PACK, OWN, False),
            lambda: offline.show_installed(done, False),
            lambda: offline.show_installed(
                InstalledPack(OWN, None, None, Path("/data/mine"), (), (), 0), False
            ),
        ],
        [for_programs(capsys, show) for show in shows],
    )
