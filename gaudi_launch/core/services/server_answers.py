"""Paths, requests and statuses of model servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gaudi_launch.core.base.plain_json import plain_json

# paths of servers that generate nothing, by task. The order matters: an embedding model also
# answers scores at /rerank, and /pooling exists for every such model (vllm-project/vllm
# 0.32.0:vllm/entrypoints/pooling/factories.py register_pooling_api_routers)
POOLED = {"embed": "/v1/embeddings", "rerank": "/rerank", "pool": "/pooling"}


def pooled_question(task: str, model: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the request for a task of POOLED.

    To a reranker, the first text is the query for the others.
    """
    if task == "rerank":
        return {"model": model, "query": texts[0], "documents": list(texts[1:])}
    return {"model": model, "input": list(texts)}


def not_served(status: int, body: bytes) -> bool:
    """Return True if the server answers that the model does not support the request.

    vLLM leaves the path out, or answers "The model does not support ... API" with status 501
    (vllm-project/vllm 0.32.0:vllm/entrypoints/pooling/factories.py,
    entrypoints/serve/exception_handling/error_response.py) or 400
    (HabanaAI/vllm-fork@0716b306:vllm/entrypoints/openai/api_server.py).
    """
    return status in (404, 405, 501) or (status == 400 and b"does not support" in body)


def true_status(status: int, body: bytes) -> int:
    """Return the status of an answer, also of an error that came with 200.

    The forks return an error object with 200 for a request that their model does not support
    (HabanaAI/vllm-fork@17a7946f4:vllm/entrypoints/openai/api_server.py create_completion); its code
    is the intended status.
    """
    if status != 200 or b'"error"' not in body[:100]:
        return status
    try:
        found = plain_json(body)
    except ValueError:
        return status
    code = None
    if isinstance(found, dict) and found.get("object") == "error":
        code = found.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return status
