"""A plan has the installed engine's own bucket list, and says when our arithmetic differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import PLAIN_GRID
from gaudi_launch.core.engines import introspect
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.request import Request

INSTALLED = Installed("/engine/python", "vllm-fork@1.21", {}, {"extension_kind": "1.21"})
REQUEST = Request(
    model="/m/x", cards=2, engine="vllm-fork@1.21", max_num_seqs=8, max_model_len=4096
)
PLAIN = Model("/m/x", "x")
OTHER = Buckets([[1, 128, 0]], [[1, 1, 128]])


def prepared(installed: Installed | None = INSTALLED) -> Prepared:
    return Prepared(REQUEST, make("hls2"), PLAIN, find("vllm-fork@1.21", installed), installed)


def answering(
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[str, Buckets] | None,
    ours: tuple[str, str] = (PLAIN_GRID, "linear"),
) -> list[tuple[Any, ...]]:
    """Let the engine answer so; None: with our own arithmetic. The questions are kept."""
    asked: list[tuple[Any, ...]] = []

    def ask_engine(
        python: str | Path, package: str, env: Any, arguments: Any
    ) -> tuple[str, Buckets]:
        asked.append((python, package, arguments.get("bucket_file")))
        return answer or (ours[1], engine_buckets(*ours, env, arguments))

    monkeypatch.setattr(introspect, "ask_engine", ask_engine)
    return asked


def test_another_list_is_believed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ("linear", OTHER))
    plan = prepared().plan()
    assert plan.buckets == OTHER and plan.warnings[-1].id == "plan.engine_buckets"
