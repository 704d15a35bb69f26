"""fp8 by the Intel Neural Compressor in auto tuning: QUANT_CONFIG, settings."""

from __future__ import annotations

from collections.abc import Mapping

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.generation import is_gaudi2
from gaudi_launch.core.models.fp8.conversion_record import CONVERTED
from gaudi_launch.core.models.fp8.measurements import PREFIX
from gaudi_launch.core.models.fp8.quant_config import Origin
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.memory import check_host_memory
from gaudi_launch.core.planning.plan import Source
from gaudi_launch.core.planning.precision import asked_fp8
from gaudi_launch.core.planning.request import Request

_LOAD_DEVICE = "--weights-load-device"
_SOURCES: Mapping[Origin, Source] = {
    "flag": "flag",
    "environment": "environment",
    "profile": "profile",
    "calibrated": "computed",
    "downloaded": "computed",
    "engine": "computed",
}


def names_quant_file(request: Request) -> bool:
    """Return True if the user named a QUANT_CONFIG."""
    return bool(request.quant_config or request.environment.get("QUANT_CONFIG"))


def quantise(context: Context, decisions: Decisions, *, needed: bool, source: Source) -> None:
    """Set QUANT_CONFIG and the KV cache type to those of the file that was found.

    They replace the scripts' guesses by the folder's name. ``needed``: this deployment reads one;
    ``source`` is that of the cache type.
    """
    request, found = context.request, context.request.quant_file
    if not asked_fp8(request):
        return
    if needed:
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
    decisions.drop("env", "QUANT_CONFIG")
    decisions.env(
        "QUANT_CONFIG", found.path, found.reason, source=_SOURCES[found.origin], origin=found.path
    )
    # the scripts point the prefix at their own checkout; a file found here has absolute paths in it
    decisions.drop("env", PREFIX)
    if exported := request.environment.get(PREFIX):
        decisions.env(PREFIX, exported, message("plan.exported"), source="environment")
    decisions.drop("option", "--kv-cache-dtype")
    decisions.option(
        "--kv-cache-dtype",
        found.kv_dtype,
        message("quant.kv_dtype"),
        source=source,
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
