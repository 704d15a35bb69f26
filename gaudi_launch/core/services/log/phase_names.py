"""The phases of a launch as people read them."""

from __future__ import annotations

from collections.abc import Mapping

from gaudi_launch.core.base.messages import text

# by the name in `follow.LaunchProgress` or in a service's state
_IDS: Mapping[str, str] = {
    "start": "serve.phase_start",
    "load": "serve.phase_load",
    "profile": "serve.phase_profile",
    "kv_cache": "serve.phase_kv_cache",
    "multimodal": "serve.phase_multimodal",
    "warmup_prompt": "serve.phase_warmup_prompt",
    "warmup_decode": "serve.phase_warmup_decode",
    "graph_prompt": "serve.phase_graph_prompt",
    "graph_decode": "serve.phase_graph_decode",
    "sampler": "serve.phase_sampler",
    "ready": "serve.phase_ready",
    "stopping": "serve.phase_stopping",
    "failed": "serve.phase_failed",
    "lost": "serve.phase_lost",
    "stopped": "serve.phase_stopped",
    "answering": "serve.phase_answering",
    "waiting": "serve.phase_waiting",
}


def phase_id(name: str) -> str:
    """Return the message ID of a phase; of one that this version lacks its own name."""
    return _IDS.get(name, name)


def phase_text(name: str) -> str:
    """Return the text of a phase."""
    return text(phase_id(name))
