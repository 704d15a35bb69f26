"""What the user exported for the engine: variables that go with a service to any home, and secrets, which are only
named."""

from __future__ import annotations

import re
from collections.abc import Mapping

# for the engine and the libraries below it; the rest of an environment is not ours to keep
_KEPT = re.compile(r"^(VLLM|HABANA|PT|HCCL|HF|HUGGINGFACE|MODELSCOPE|RAY|OMP|GLOO|ENABLE|INC|QUANT|TRANSFORMERS)_")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
# variables whose values the engine needs and that are never written down
SECRETS = ("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN")


def engine_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's own variables for the engine, never secret ones."""
    return {name: value for name, value in environment.items() if _KEPT.match(name) and not _SECRET.search(name)}
