"""A plan has the installed engine's own bucket list, and says when our arithmetic differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app.prepare import Prepared
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.engine_buckets import engine_buckets
from gaudi_launch.buckets.families import CONTEXT_LADDER, PLAIN_GRID
from gaudi_launch.engines import introspect
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model

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
    answer: introspect.IntrospectedBuckets | None,
    ours: tuple[str, str] = (PLAIN_GRID, "linear"),
) -> list[tuple[Any, ...]]:
    """Let the engine answer so; None: with our own arithmetic. The questions are kept."""
    asked: list[tuple[Any, ...]] = []

    def ask_engine(
        python: str | Path, package: str, env: Any, arguments: Any
    ) -> introspect.IntrospectedBuckets:
        asked.append((python, package, arguments.get("bucket_file")))
        return answer or introspect.IntrospectedBuckets(
            engine_buckets(*ours, env, arguments), ours[1]
        )

    monkeypatch.setattr(introspect, "ask_engine", ask_engine)
    return asked


def test_the_same_list_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = prepared(None).plan()
    asked = answering(monkeypatch, None)
    plan = prepared().plan()
    assert (plan.settings, plan.buckets) == (alone.settings, alone.buckets)
    assert "plan.engine_buckets" not in [warning.id for warning in plan.warnings]
    assert {*asked} == {("/engine/python", "vllm_hpu_extension", None)}


def test_another_list_is_believed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, introspect.IntrospectedBuckets(OTHER, "linear"))
    plan = prepared().plan()
    assert plan.buckets == OTHER and plan.warnings[-1].id == "plan.engine_buckets"


def test_an_engine_that_would_stop_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = message("warmup_engine.ask_refused", error="ValueError: math domain error")
    answering(monkeypatch, introspect.IntrospectedBuckets(None, why=why, failed=True))
    with pytest.raises(LaunchError) as refused:
        prepared().plan()
    assert refused.value.id == "plan.buckets_fail"


def test_an_engine_without_an_answer_is_planned_by_our_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = introspect.IntrospectedBuckets(None, why=message("common.interrupted"))
    asked = answering(monkeypatch, silent)
    assert prepared().plan().buckets == prepared(None).plan().buckets
    # each question once
    assert len(asked) == 1


def of_plugin(
    monkeypatch: pytest.MonkeyPatch,
    answer: introspect.IntrospectedBuckets | None,
    model: Model = PLAIN,
    **wishes: Any,
) -> tuple[Prepared, list[Any]]:
    """A plan for an installed plugin that answers so, and its questions."""
    asked = answering(monkeypatch, answer, (CONTEXT_LADDER, "file"))
    installed = Installed("/e/python", "vllm-gaudi", {}, {"plugin": "0.26.0", "vllm": "0.26.0"})
    wishes = {"cards": None, "files_dir": "/c", **wishes}
    request = replace(REQUEST, engine="vllm-gaudi", **wishes)
    return Prepared(request, make("hls2"), model, find("auto", installed), installed), asked


def test_the_plugin_is_asked_with_the_file_that_goes_with_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared_, asked = of_plugin(monkeypatch, None)
    plan = prepared_.plan()
    assert asked[-1][2:] == tuple(plan.command.files.values())
    prepared_, _ = of_plugin(monkeypatch, introspect.IntrospectedBuckets(OTHER, "file"))
    assert prepared_.plan().buckets == OTHER


def test_the_graphs_of_the_installed_plugin_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Buckets([[1, 128 * n, 0] for n in range(1, 17)], [[1, 1, n] for n in range(1, 3001)])
    model = known_model("Llama-3.1-8B-Instruct", must_exist=False)
    ours, _ = of_plugin(monkeypatch, None, model, cards=1)
    reserved = ours.plan().command.env["VLLM_GRAPH_RESERVED_MEM"]
    theirs, _ = of_plugin(monkeypatch, introspect.IntrospectedBuckets(many, "file"), model, cards=1)
    plan = theirs.plan()
    assert float(plan.command.env["VLLM_GRAPH_RESERVED_MEM"]) > float(reserved)
    assert plan.warnings[-1].values["theirs"] == 3016


def test_a_plugin_that_warms_nothing_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared_, asked = of_plugin(monkeypatch, None, extra=("--enforce-eager",))
    assert prepared_.plan().buckets is None and asked == []
