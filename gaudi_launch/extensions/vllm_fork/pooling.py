"""Embedding and rerank models on the forks: prompts only, no KV cache.

Many texts run per step. HabanaAI/vllm-fork@277a33cd9 and @17a7946f4:
vllm/worker/hpu_pooling_model_runner.py, hpu_worker.py load_model (the warm-up follows the load
immediately), vllm/engine/llm_engine.py (no cache for the runner type "pooling"), vllm/config.py
(--task), vllm/model_executor/models/registry.py (any model can pool; cross-encoders).
"""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.upstream_tasks import (
    CHAT,
    EMBED,
    RERANK,
    TASK_REASONS,
    pooling_options,
    task_of,
)
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.engine_args import EngineArgs

_ORIGIN = "HabanaAI/vllm-fork@17a7946f4:vllm/config.py"
_TASKS = {"embed": EMBED, "embedding": EMBED, "score": RERANK, "classify": RERANK, "generate": CHAT}
_WORDS = {EMBED: "embed", RERANK: "score"}


def fork_task(model: Model, args: EngineArgs) -> str:
    """Return the task of this model; the user's --task wins."""
    own = args.last("--task")
    if own:
        return _TASKS.get(own, task_of(model))
    return task_of(model)


def pools(model: Model, args: EngineArgs) -> bool:
    """Return True for a model that has prompts only."""
    return fork_task(model, args) != CHAT


def add_options(context: Context, decisions: Decisions) -> None:
    """Add the task, and for Qwen3's rerankers the class that scores with two tokens."""
    task = fork_task(context.model, context.request.args)
    if task == CHAT:
        return
    reason = message(TASK_REASONS[task])
    if task in _WORDS:
        decisions.option("--task", _WORDS[task], reason, origin=_ORIGIN)
    overrides = dict(pooling_options(context.model, task)).get("--hf-overrides")
    if overrides is not None:
        origin = "HabanaAI/vllm-fork@17a7946f4:vllm/model_executor/models/qwen3.py:383"
        decisions.option("--hf-overrides", overrides, reason, origin=origin)


def leave_out_decode(decisions: Decisions) -> None:
    """Drop the ranges of buckets that a pooling model never makes."""
    for setting in decisions.variables():
        if setting.name.startswith("VLLM_DECODE_") and setting.source != "environment":
            decisions.drop("env", setting.name)
