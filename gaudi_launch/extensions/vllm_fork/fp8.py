"""fp8 by the Intel Neural Compressor in auto tuning: QUANT_CONFIG, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.generation import is_gaudi2
from gaudi_launch.core.models.fp8.conversion_record import CONVERTED
from gaudi_launch.core.models.fp8.measurements import PREFIX
from gaudi_launch.core.models.fp8.quant_config import Origin
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.memory import check_host_memory
from gaudi_launch.core.planning.plan import Source
from gaudi_launch.core.planning.precision import asked_fp8
from gaudi_launch.core.planning.request import Request

_LOAD_DEVICE = "--weights-load-device"
_RESCALE = "VLLM_HPU_CONVERT_TO_FP8UZ"
# config.json's quant_method of checkpoints with 8-bit floats
_FP8 = ("fp8", "compressed-tensors")
_SOURCES: Mapping[Origin, Source] = {
    "flag": "flag",
    "environment": "environment",
    "profile": "profile",
    "calibrated": "computed",
    "downloaded": "computed",
    "engine": "computed",
}


def needs_quant_file(request: Request, model: Model, version: str) -> bool:
    """Return True if this deployment reads a QUANT_CONFIG.

    Weights that are fp8 on disk run without, unless one is named; deepseek_r1 requantises them with
    -q.
    """
    named = bool(request.quant_config or request.environment.get("QUANT_CONFIG"))
    if version == "deepseek_r1":
        return request.inc_fp8 or named
    return named or (request.dtype == "fp8" and model.quantization != "fp8")


def with_fp8(context: Context, version: str) -> Context:
    """Return the context in which a quantisation file means fp8.

    1.22 assumes it by itself, 1.21 needs the option.
    """
    if version == "1.21" and asked_fp8(context.request):
        return replace(context, request=replace(context.request, dtype="fp8"))
    return context


def quantise(context: Context, decisions: Decisions, version: str) -> None:
    """Set QUANT_CONFIG and the KV cache type to those of the file that was found.

    They replace the scripts' guesses by the folder's name.
    """
    request, found = context.request, context.request.quant_file
    if version == "1.22" and not needs_quant_file(request, context.model, version):
        _rescale(context, decisions)
    if not asked_fp8(request):
        return
    if needs_quant_file(request, context.model, version):
        _load_on_host(context, decisions)
    else:
        for name in ("--quantization", "--kv-cache-dtype", "--weights-load-device"):
            decisions.drop("option", name)
        decisions.drop("env", "QUANT_CONFIG")
        decisions.warn("quant.stored", model=context.model.name)
        return
    if found is None:
        # a start script's folder is known where its call was read (migrate); else its path is
        # invalid
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
    # 1.22 reads the file itself; stated so that the memory is computed with the result
    decisions.option(
        "--kv-cache-dtype",
        found.kv_dtype,
        message("quant.kv_dtype"),
        source=decided,
        origin="vllm/config.py",
    )


def _load_on_host(context: Context, decisions: Decisions) -> None:
    """Load weights that are not fp8 on disk into host memory.

    INC quantises them there.

    The load device is the card unless the option is given (HabanaAI/vllm-fork@277a33cd9 and
    @016b6bd20: vllm/model_executor/model_loader/loader.py load_model; @17a7946f4:
    base_loader.py:39), so that weights of full size would be on the cards first.
    """
    if context.model.quantization is not None:
        return
    own = context.request.args.last(_LOAD_DEVICE)
    if own is None:
        origin = "HabanaAI/vllm-fork@aice/v1.22.0:scripts/README.md"
        decisions.option(_LOAD_DEVICE, "cpu", message("quant.load_on_host"), origin=origin)
    if own in (None, "cpu"):
        check_host_memory(context, decisions)


def _rescale(context: Context, decisions: Decisions) -> None:
    """Load quantised weights through host memory for 1.22 on Gaudi2.

    fp8 ones are brought into Gaudi2's range there.
    HabanaAI/vllm-fork@17a7946f4:vllm/config.py:4504-4519; scripts/README.md: not for weights that
    were converted.
    """
    model = context.model
    if model.quantization is None or not is_gaudi2(context):
        return
    origin = "HabanaAI/vllm-fork@17a7946f4:vllm/config.py"
    if model.converted:
        decisions.env(_RESCALE, "false", message("quant.converted"), origin=origin)
    elif model.quantization in _FP8:
        decisions.env(_RESCALE, "true", message("quant.rescaled"), source="engine", origin=origin)
    exported = context.request.environment.get(_RESCALE, "").lower()
    if not model.converted and exported in ("", "1", "true"):
        check_host_memory(context, decisions)


def warn_of_range(context: Context, decisions: Decisions, *, needs_range: bool) -> None:
    """Warn of fp8 weights that must be in Gaudi2's range, of a folder not found here.

    A folder or hub ID that is known gets its conversion as a step before the launch
    (`core.launch.setup_steps`). A folder with the name of a conversion is assumed to be made by
    that step.
    """
    model = context.model
    if model.path.rstrip("/").endswith(CONVERTED):
        return
    unread = model.source == "name" and model.path.startswith(("/", ".", "~"))
    if needs_range and unread and model.quantization == "fp8" and is_gaudi2(context):
        decisions.warn("gaudi.convert_first", model=model.name)
