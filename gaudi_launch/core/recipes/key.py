"""The key of a recipe cache: everything that invalidates compiled graphs.

Recipes depend on the software version, device generation, tensor parallel size, dtype and whatever
changes graph shapes (docs: Managing and Reducing vLLM Warmup Time; docs: Runtime Environment
Variables). No document lists which variables change graphs, so every variable and option counts
unless it is known not to matter: an unknown one costs a warm-up, a forgotten one would give a wrong
estimate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.plan import Plan

# The list of warmed shapes, the address, the memory share, the logging: none of these changes what
# one graph compiles to. (The number of KV blocks does; the ledger stores it.)
_INDIFFERENT_VARIABLES = re.compile(
    r"""^(
        .*_BUCKET_.* | VLLM_BUCKETING_.* | VLLM_EXPONENTIAL_BUCKETING | VLLM_SKIP_(LAZY_)?WARMUP
        | VLLM_GRAPH_.* | VLLM_GPU_MEMORY_UTILIZATION | VLLM_MAX_SEQ_LEN_TO_CAPTURE
        | PT_HPU_RECIPE_CACHE_CONFIG | HABANA_VISIBLE_.* | HLS_MODULE_ID | HABANA_LOGS | .*LOG.*
        | VLLM_HOST_IP | .*_SOCKET_IFNAME | VLLM_PORT | VLLM_RPC_.* | RAY_.* | VLLM_RAY_.*
        | .*PROFIL.* | TOKENIZERS_PARALLELISM | VLLM_WORKER_MULTIPROC_METHOD | VLLM_SERVER_DEV_MODE
        | HF_.* | HUGGINGFACE_.* | MODELSCOPE_.* | VLLM_API_KEY | OMP_.* | VLLM_CPU_.*
        | QUANT_CONFIG | INC_MEASUREMENT_DUMP_PATH_PREFIX | VLLM_GC_.*
        | VLLM_ALLOW_LONG_MAX_MODEL_LEN
    )$""",
    re.VERBOSE,
)
# by PT_HPU_LAZY_MODE; every other value compiles
_MODES = {"1": "lazy"}
_GRAPH_OPTIONS = (
    "--block-size",
    "--kv-cache-dtype",
    "--quantization",
    "--enable-expert-parallel",
    "--enforce-eager",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--num-scheduler-steps",
    "--speculative-config",
    "--enable-lora",
)


_LABELS = {
    "product": "cache.part_product",
    "stepping": "cache.part_stepping",
    "driver": "cache.part_driver",
    "software": "cache.part_software",
    "engine": "cache.part_engine",
    "engine_commit": "cache.part_engine_commit",
    "extension_commit": "cache.part_extension_commit",
    "model": "cache.part_model",
    "model_config": "cache.part_model_config",
    "tensor_parallel": "cache.part_tensor_parallel",
    "dtype": "cache.part_dtype",
    "quantization": "cache.part_quantization",
    "mode": "cache.part_mode",
}


def part_label(name: str) -> str:
    """Return a fact's name for people; a variable or option keeps its own."""
    return text(_LABELS[name]) if name in _LABELS else name


@dataclass(frozen=True)
class KeyDifference:
    """One invalidating fact that differs: its name and both values as text."""

    name: str
    was: str
    now: str

    def shown(self) -> str:
        """Return it for people."""
        return f"{part_label(self.name)} {self.was or '-'} -> {self.now or '-'}"


@dataclass(frozen=True)
class KeyParts:
    """Every invalidating fact as text.

    An empty text means "not known", and is a value like any other.
    """

    product: str = ""
    stepping: str = ""
    driver: str = ""
    software: str = ""
    engine: str = ""
    engine_commit: str = ""
    extension_commit: str = ""
    model: str = ""
    model_config: str = ""
    tensor_parallel: int = 1
    dtype: str = ""
    quantization: str = ""
    mode: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return 16 hex digits; the same for the same facts in any order."""
        facts = json.dumps(
            codec.write(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True
        )
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    def differences(self, now: KeyParts) -> tuple[KeyDifference, ...]:
        """Return what differs in ``now``, in the order of the fields, variables last."""
        found = [
            KeyDifference(f.name, str(getattr(self, f.name)), str(getattr(now, f.name)))
            for f in fields(self)
            if f.name != "variables" and getattr(self, f.name) != getattr(now, f.name)
        ]
        for name in sorted({*self.variables, *now.variables}):
            was, is_now = self.variables.get(name, ""), now.variables.get(name, "")
            if was != is_now:
                found.append(KeyDifference(name, was, is_now))
        return tuple(found)


def parts_of(plan: Plan, host: Host, quant_config: bytes | None = None) -> KeyParts:
    """Return the parts of the cache that this plan fills on this host.

    ``quant_config`` is the content of QUANT_CONFIG's file: its scales are compiled into graphs.
    """
    env = plan.command.env
    options = {s.name: s.value or "true" for s in plan.settings if s.kind == "option" and s.sent}
    graph_options = {name: options[name] for name in _GRAPH_OPTIONS if name in options}
    facts = plan.engine.facts
    config = plan.model.get("config")
    here = parts_of_host(host)
    return KeyParts(
        product=here.product,
        stepping=here.stepping,
        driver=here.driver,
        software=facts.get("software", ""),
        # settings around an engine compile nothing
        engine=facts.get("inner") or plan.engine.exact,
        engine_commit=facts.get("commit", "") or facts.get("vllm", ""),
        extension_commit=facts.get("extension_commit", "") or facts.get("extension", ""),
        model=str(plan.model.get("name", "")),
        model_config=_digest(config or dict(plan.model)),
        # of several replicas, the cards of one
        tensor_parallel=max(1, int(options.get("resources.HPU") or len(plan.placement.modules))),
        dtype=options.get("--dtype", ""),
        quantization=hashlib.sha256(quant_config).hexdigest()[:16] if quant_config else "",
        mode=_MODES.get(env.get("PT_HPU_LAZY_MODE", ""), "compile"),
        variables={
            **{
                name: value for name, value in env.items() if not _INDIFFERENT_VARIABLES.match(name)
            },
            **graph_options,
        },
    )


def parts_of_host(host: Host) -> KeyParts:
    """Return the parts that a machine alone decides.

    They are product, stepping and driver release.
    """
    return KeyParts(
        product=host.product or "",
        stepping=",".join(sorted({card.device_type for card in host.cards if card.device_type})),
        driver="".join(re.findall(r"^\d+\.\d+", host.driver_version or "")),
    )


def _digest(document: Any) -> str:
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:16]
