"""Decide whether a deployment runs in fp8.

One answer for all that depends on it: estimates, memory, profiles, records.
"""

from __future__ import annotations

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.fp8.quant_config import kv_cache_dtype
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.request import Request

_BY_WORD = ("inc", "fp8")


def asked_fp8(request: Request) -> bool:
    """Return True if the user requested fp8: -q, -d fp8, or a quantisation file.

    The file may be an option or exported. (1.22's start script takes any QUANT_CONFIG for fp8:
    HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh.)
    """
    exported = request.environment.get("QUANT_CONFIG")
    return bool(request.inc_fp8 or request.dtype == "fp8" or request.quant_config or exported)


def runs_fp8(request: Request, model: Model) -> bool:
    """Return True if the weights run in fp8.

    By our options or the engine's ``--quantization``, or because they are stored so.
    """
    return (
        asked_fp8(request)
        or request.args.last("--quantization") in _BY_WORD
        or model.quantization == "fp8"
    )


def weight_type(request: Request, model: Model) -> str:
    """Return the type in which the weights run.

    That is ``fp8``, else the requested type, else the model's.
    """
    if runs_fp8(request, model):
        return "fp8"
    return request.dtype or model.dtype or "bfloat16"


def check_stored_type(request: Request, model: Model) -> None:
    """Raise LaunchError (MODEL) for awq or gptq without weights of that kind.

    Every engine ends while it loads them. Only for weights that are known: by config.json, or by a
    profile that lists this model.
    """
    asked = request.dtype or (request.args.last("--quantization") or "").removesuffix("_hpu")
    if asked not in ("awq", "gptq") or request.tuning == "reference" or model.quantization == asked:
        return
    profile = profiles.match(model)
    listed = profile is not None and model.name in {
        each.rpartition("/")[2] for each in profile.models
    }
    if model.source == "config.json" or listed:
        raise LaunchError("plan.not_quantised", ExitCode.MODEL, model=model.name, found=asked)


def kernels_of(quantised: str | None) -> str | None:
    """Return the ``--quantization`` of weights that are stored quantised.

    It is for engines that must be given it: they refuse config.json's own awq and gptq
    (vllm/platforms/hpu.py and vllm_gaudi/platform.py: supported_quantization).
    """
    if quantised not in ("awq", "gptq"):
        return None
    return f"{quantised}_hpu"


def fp8_cache(model: Model, calibration: Calibration | None) -> str:
    """Return the KV cache type for calibrated fp8 weights.

    By a profile of the user, by the file that this engine's calibration scripts write for the
    model, or by its shipped profile.
    """
    profile = profiles.match(model)
    if profile is not None and (profile.own or calibration is None):
        return profile.fp8_kv
    if calibration is None:
        return "fp8_inc"
    return kv_cache_dtype(calibration.rules_for(model.name).quant_config(""))
