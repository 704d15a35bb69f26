"""Does a deployment run in fp8? One answer for all that depends on it: estimates, memory, profiles, records."""

from __future__ import annotations

from gaudi_launch import profiles
from gaudi_launch.models.calibration.rules import Calibration
from gaudi_launch.models.fp8.quant_config import kv_cache_dtype
from gaudi_launch.models.records import Model
from gaudi_launch.planning.request import Request

_BY_WORD = ("inc", "fp8")


def asked_fp8(request: Request) -> bool:
    """Did the user ask for fp8: -q, -d fp8, or a quantisation file as option or exported? (1.22's start script
    takes any QUANT_CONFIG for fp8: HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh.)"""
    exported = request.environment.get("QUANT_CONFIG")
    return bool(request.inc_fp8 or request.dtype == "fp8" or request.quant_config or exported)


def runs_fp8(request: Request, model: Model) -> bool:
    """Do the weights run in fp8: asked for by our options or the engine's own ``--quantization``, or stored so?"""
    return asked_fp8(request) or request.args.last("--quantization") in _BY_WORD or model.quantization == "fp8"


def weight_type(request: Request, model: Model) -> str:
    """The type in which the weights run: ``fp8``, else the one asked for, else the model's own."""
    return "fp8" if runs_fp8(request, model) else request.dtype or model.dtype or "bfloat16"


def kernels_of(quantised: str | None) -> str | None:
    """The ``--quantization`` of weights that lie quantised so on disk, where the engine must be told: it refuses
    config.json's own awq and gptq (vllm/platforms/hpu.py and vllm_gaudi/platform.py: supported_quantization)."""
    return f"{quantised}_hpu" if quantised in ("awq", "gptq") else None


def fp8_cache(model: Model, calibration: Calibration | None) -> str:
    """The KV cache type that goes with calibrated fp8 weights: by a profile of the user's own, by the file that
    the calibration scripts of this engine write for the model, by its shipped profile."""
    profile = profiles.match(model)
    if calibration is not None and not (profile and profile.own):
        return kv_cache_dtype(calibration.rules_for(model.name).quant_config(""))
    return profile.fp8_kv if profile else "fp8_inc"
