"""fp8 by the Intel Neural Compressor in auto tuning: the QUANT_CONFIG that was found, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gaudi_launch.messages import message
from gaudi_launch.models.measurements import PREFIX
from gaudi_launch.models.quant_config import Origin
from gaudi_launch.models.records import Model
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.plan import Source
from gaudi_launch.planning.precision import asked_fp8
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.settings import Decisions

_SOURCES: Mapping[Origin, Source] = {
    "flag": "flag",
    "environment": "environment",
    "profile": "profile",
    "calibrated": "computed",
    "downloaded": "computed",
    "engine": "computed",
}


def needs_quant_file(request: Request, model: Model, version: str) -> bool:
    """Does this deployment read a QUANT_CONFIG? Weights that are fp8 on disk run without, unless one is named;
    deepseek_r1 requantises them with -q."""
    named = bool(request.quant_config or request.environment.get("QUANT_CONFIG"))
    if version == "deepseek_r1":
        return request.inc_fp8 or named
    return named or (request.dtype == "fp8" and model.quantization != "fp8")


def with_fp8(context: Context, version: str) -> Context:
    """The context in which a quantisation file means fp8: 1.22 takes it so by itself, 1.21 wants to be told."""
    if version == "1.21" and asked_fp8(context.request):
        return replace(context, request=replace(context.request, dtype="fp8"))
    return context


def quantise(context: Context, decisions: Decisions, version: str) -> None:
    """Set QUANT_CONFIG and the KV cache type to what was found, over the scripts' guesses by the folder's name."""
    request, found = context.request, context.request.quant_file
    if not asked_fp8(request):
        return
    if not needs_quant_file(request, context.model, version):
        for name in ("--quantization", "--kv-cache-dtype", "--weights-load-device"):
            decisions.drop("option", name)
        decisions.drop("env", "QUANT_CONFIG")
        decisions.warn("quant.stored", model=context.model.name)
        return
    if found is None:
        # a start script's own folder is known where its call was read (migrate); else its path leads nowhere
        if request.scripts_dir is None and not request.quant_config:
            for name in ("QUANT_CONFIG", PREFIX):
                if not request.environment.get(name):
                    decisions.drop("env", name)
        return
    reason = message(f"quant.found_{found.origin}")
    source = _SOURCES[found.origin]
    decisions.drop("env", "QUANT_CONFIG")
    decisions.env("QUANT_CONFIG", found.path, reason, source=source, origin=found.path)
    # the scripts point the prefix at their own checkout; a file found here has absolute paths in it
    decisions.drop("env", PREFIX)
    if exported := request.environment.get(PREFIX):
        decisions.env(PREFIX, exported, message("plan.exported"), source="environment")
    decided: Source = "engine" if version == "1.22" else "computed"
    decisions.drop("option", "--kv-cache-dtype")
    # 1.22 reads the file itself; said so that the memory is computed with what it will do
    decisions.option(
        "--kv-cache-dtype", found.kv_dtype, message("quant.kv_dtype"), source=decided, origin="vllm/config.py"
    )
