"""The task of a model by its config.json, and upstream vLLM's options for it."""

from __future__ import annotations

import json
import re

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import WRITING_MODELS
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs

CHAT, EMBED, RERANK, POOL = "chat", "embed", "rerank", "pool"
# message IDs of the reason for a pooling task's options
TASK_REASONS = {EMBED: "gaudi.task_embed", RERANK: "gaudi.task_rerank", POOL: "gaudi.task_pool"}

# vllm-project/vllm 0.32.0:vllm/config/model.py _SUFFIX_TO_DEFAULTS, in its order; "Model" takes the
# encoders
_BY_SUFFIX = (
    ("ForCausalLM", CHAT),
    ("ForConditionalGeneration", CHAT),
    *((suffix, CHAT) for suffix in WRITING_MODELS),
    ("ForTextEncoding", EMBED),
    ("EmbeddingModel", EMBED),
    ("ForSequenceClassification", RERANK),
    ("ForTokenClassification", POOL),
    ("ClassificationModel", POOL),
    ("ForRewardModeling", POOL),
    ("RewardModel", POOL),
    ("Model", EMBED),
)
# language models that are embedders or rerankers have a chat model's config.json: only their names
# differ (assumed)
_RERANK_NAME = re.compile(r"rerank", re.IGNORECASE)
_EMBED_NAME = re.compile(
    r"(^|[-_.])(embed|embedding|embeddings|bge|e5|gte|sfr|stella)([-_.]|$)", re.IGNORECASE
)
# vllm-project/vllm 0.32.0:examples/pooling/score/qwen3_reranker_offline.py by way of
# models/config.py
_QWEN3_RERANKER = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}


def task_of(model: Model, args: EngineArgs = NO_ARGS) -> str:
    """Return ``chat``, ``embed``, ``rerank`` or ``pool`` (another pooling task).

    The user's --runner and --convert win.

    >>> task_of(Model("m", "m", architecture="BertModel"))
    'embed'
    >>> task_of(Model("m", "Qwen3-Reranker-8B", architecture="Qwen3ForCausalLM"))
    'rerank'
    """
    runner, convert = args.last("--runner"), args.last("--convert")
    if runner == "generate":
        return CHAT
    by_convert = {"embed": EMBED, "classify": RERANK}.get(convert or "")
    if by_convert:
        return by_convert
    found = _by_architecture(model)
    if runner == "pooling" and found == CHAT:
        return POOL
    return found


def _by_architecture(model: Model) -> str:
    architecture = model.architecture or ""
    found = next((task for suffix, task in _BY_SUFFIX if architecture.endswith(suffix)), CHAT)
    if found == CHAT and (not model.multimodal or not architecture):
        if _RERANK_NAME.search(model.name):
            return RERANK
        if _EMBED_NAME.search(model.name):
            return EMBED
    return found


def sees_by_name(model: Model) -> bool:
    """Return True if the model is known only by its name to read images."""
    return "vision" in model.multimodal and model.source == "name" and not model.model_type


def by_name_only(model: Model) -> bool:
    """Return True if the task is known from the model's name alone."""
    architecture = model.architecture or ""
    return task_of(model) != CHAT and (not architecture or architecture.endswith("ForCausalLM"))


def pooling_options(model: Model, task: str) -> list[tuple[str, str]]:
    """Return (option, value) that make upstream vLLM serve this model for this task."""
    options = [("--runner", "pooling")]
    architecture = model.architecture or ""
    language_model = not architecture or architecture.endswith(("ForCausalLM", "LMHeadModel"))
    if task == EMBED and language_model:
        options.append(("--convert", "embed"))
    if task == RERANK and language_model:
        qwen3 = model.model_type == "qwen3" or (
            not model.model_type and model.name.lower().startswith("qwen3")
        )
        overrides = json.dumps(_QWEN3_RERANKER, separators=(",", ":"))
        options.append(("--hf-overrides", overrides) if qwen3 else ("--convert", "classify"))
    return options
