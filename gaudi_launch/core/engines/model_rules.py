"""Rules of the vLLM engines for a model: its heads, its profile."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.precision import weight_type
from gaudi_launch.core.planning.requested_cards import counts_for, refuse_heads


def check_model(context: Context) -> None:
    """Raise LaunchError for what no vLLM engine can do with this model and cards."""
    request, model = context.request, context.model
    cards, kv, allowed = context.placement.tensor, model.kv_heads, counts_for(request, model)
    # vllm/model_executor/layers/linear.py: heads are divided, kv heads divided or replicated
    # completely
    refuse_heads(request, model, cards)
    if kv and not model.mla_rank and kv % cards and cards % kv:
        raise LaunchError("plan.kv_heads", ExitCode.MODEL, heads=kv, cards=cards, allowed=allowed)


def follow_profile(context: Context, decisions: Decisions, key: str, *, named_only: bool) -> None:
    """Apply the model's profile over our rules.

    The user's options and variables win over it. ``key`` is the engine's in the profile;
    ``named_only``: the settings under that name, without those of every engine.
    """
    profile = profiles.match(context.model)
    if profile is None:
        return
    # the branch deepseek_r1 is not counted among them
    release = profile.engine.partition("@")[2]
    if key < release:
        decisions.warn("engines.too_old", model=profile.name, version=key, wanted=release)
    request = context.request
    # both versions of the engine compute in bfloat16, whatever the weights are stored as
    dtype = weight_type(request, replace(context.model, dtype=None))
    flags = {
        (setting.kind, setting.name) for setting in decisions.settings() if setting.source == "flag"
    }
    for kind, name, value, reason, origin in profiles.profile_settings(profile, key, dtype):
        if (kind, name) in flags:
            continue
        if kind == "env":
            decisions.env(name, value or "", reason, source="profile", origin=origin)
        else:
            decisions.option(name, value, reason, source="profile", origin=origin)
    if named_only:
        return
    # of a QUANT_CONFIG that was found, the file itself determines the cache type
    if decisions.get("option", "--kv-cache-dtype") is not None and request.quant_file is None:
        reason = message("profiles.setting", profile=profile.name)
        origin = profile.sources.get("fp8_kv_cache", profile.sources["serving"])
        decisions.option(
            "--kv-cache-dtype", profile.fp8_kv, reason, source="profile", origin=origin
        )
    if not profile.expert_parallel:
        decisions.drop("option", "--enable-expert-parallel")
