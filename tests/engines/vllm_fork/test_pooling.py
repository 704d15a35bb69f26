"""Embedding and rerank models on the forks: no cache, no decode, many texts a step."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.machine import load
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from tests.support.refusals import failing

FORKS = ("vllm-fork@1.21", "vllm-fork@1.22")


def model(name: str, architecture: str, model_type: str) -> Model:
    return Model(
        path=f"/m/{name}",
        name=name,
        source="config.json",
        architecture=architecture,
        model_type=model_type,
        parameters=567754752,
        dtype="bfloat16",
        moe=False,
        layers=24,
        hidden_size=1024,
        intermediate_size=4096,
        heads=16,
        kv_heads=16,
        head_dim=64,
        vocab_size=250002,
        max_position_embeddings=8194,
    )


EMBEDDER = model("bge-m3", "XLMRobertaModel", "xlm-roberta")
RERANKER = model("bge-reranker-v2-m3", "XLMRobertaForSequenceClassification", "xlm-roberta")
QWEN = model("Qwen3-Reranker-8B", "Qwen3ForCausalLM", "qwen3")


def plan(engine: str, found: Model, **wishes: Any) -> Plan:
    request = Request(
        model=found.path, engine=engine, max_num_seqs=16, max_model_len=2048, **wishes
    )
    return make_plan(request, load("simulated:hls2"), found, find(engine))


def option(made: Plan, name: str) -> str | None:
    argv = made.command.argv
    return argv[argv.index(name) + 1] if name in argv else None


@pytest.mark.parametrize("engine", FORKS)
@pytest.mark.parametrize(
    ("found", "task"), [(EMBEDDER, "embed"), (RERANKER, "score"), (QWEN, "score")]
)
def test_prompts_only(engine: str, found: Model, task: str) -> None:
    made = plan(engine, found)
    assert option(made, "--task") == task
    assert option(made, "--max-num-prefill-seqs") == "16"
    assert made.buckets is not None and made.buckets.prompt
    assert made.buckets.decode == []
    assert max(batch for batch, _query, _context in made.buckets.prompt) == 16
    assert (made.memory["kv"], made.memory["graphs"], made.num_blocks) == (0, 0, None)
    assert not [name for name in made.command.env if name.startswith("VLLM_DECODE_")]
    assert "plan.memory_unchecked" not in [warning.id for warning in made.warnings]


@pytest.mark.parametrize("engine", FORKS)
def test_qwens_reranker_gets_its_class(engine: str) -> None:
    assert "Qwen3ForSequenceClassification" in (option(plan(engine, QWEN), "--hf-overrides") or "")
    assert option(plan(engine, EMBEDDER), "--hf-overrides") is None


@pytest.mark.parametrize("engine", FORKS)
def test_the_users_own_task_wins(engine: str) -> None:
    made = plan(engine, QWEN, extra=("--task", "generate"))
    assert made.buckets is not None and made.buckets.decode
    assert made.memory["kv"] > 0


def test_fewer_texts_a_step_when_asked() -> None:
    assert (
        option(plan("vllm-fork@1.22", EMBEDDER, max_prefill_seqs=4), "--max-num-prefill-seqs")
        == "4"
    )


def test_deepseek_r1_refuses_them() -> None:
    with failing("plan.fork_task", ExitCode.MODEL):
        plan("deepseek_r1", EMBEDDER)
