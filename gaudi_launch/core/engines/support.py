"""The models that each engine version runs, by profiles/engines/support.

The lists were read from the engines' source by ``scripts/engine_facts.py``; each answer names its
commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import shipped_json
from gaudi_launch.core.engines.engine_version import REGISTRY, Expansion, Version, version_numbers
from gaudi_launch.core.engines.facts.registry import InstalledLists
from gaudi_launch.core.engines.known_versions import (
    is_branch,
    newest,
    newest_or_none,
    version_of,
    versions,
)
from gaudi_launch.core.engines.layer_caches import cache_limits, layer_caches, refuses_layers
from gaudi_launch.core.models.cached_layers import has_linear_attention
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.precision import kernels_of
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus, Validated

# vllm-project/vllm 0.26.0:vllm/config/model.py _SUFFIX_TO_DEFAULTS: a class is also taken from a
# base class with another suffix. The forks do not have this (vllm/model_executor/models/registry.py
# _normalize_archs).
_SUFFIXES = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "ChatModel",
    "LMHeadModel",
    "ForTextEncoding",
    "EmbeddingModel",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForAudioClassification",
    "ForImageClassification",
    "ForVideoClassification",
    "ClassificationModel",
    "ForRewardModeling",
    "RewardModel",
    "Model",
)
# the forks take a class by its exact name (vllm/model_executor/models/registry.py _normalize_archs)
_WITHOUT_SUFFIXES = ("HabanaAI/vllm-fork",)
# vllm-project/vllm 0.26.0:vllm/model_executor/models/deepseek_v2.py is_v32, of these classes
_SPARSE_CLASSES = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
# classes whose layers with states run on layers that the plugin replaces, by the first release with
# them: vllm-project/vllm-gaudi@v0.14.1:vllm_gaudi/ops/hpu_mamba_mixer2.py (MambaMixer2),
# @v0.19.0:vllm_gaudi/models/qwen3_5.py (layers of GDN)
_STATE_CLASSES: Mapping[str, tuple[str, ...]] = {
    "0.14.1": ("FalconH1", "GraniteMoeHybrid", "Mamba2For", "NemotronH", "Zamba2", "Bamba"),
    "0.19.0": ("Qwen3Next", "Qwen3_5", "ColQwen3_5"),
}
# classes with an implementation for each platform, and NVIDIA's for those that they do not name:
# vllm-project/vllm@01063cd0:vllm/models/deepseek_v4/__init__.py; vLLM 0.26.0: vllm/models/inkling
_BY_PLATFORM = ("DeepseekV4", "DeepSeekV4", "DSpark", "Inkling")
# different spellings of one model's name on hubs: Meta-Llama-3.1-8B and Llama-3.1-8B
_PREFIX = re.compile(r"^(meta-)")


# HabanaAI/vllm-fork@95af7009 (2025-10-28): the server's message names the end of the fork and its
# successor
_ENDED = {"vllm-fork": "2025-10-28", "deepseek_r1": "2025-10-28"}


def ended(label: str) -> str | None:
    """Return the date on which an engine's makers announced its end.

    Return None for one that is continued.
    """
    return _ENDED.get(label.partition("@")[0])


# of weights that are loaded as they are
_NOT_EXPANDED = Expansion()
# a version without facts
_NOTHING = Version("", "", "", "", "")


@cache
def _transformers() -> Mapping[str, Any]:
    document: Mapping[str, Any] = shipped_json("engines", "support", "transformers.json")
    return document


def releases_with(architecture: str, spec: str) -> tuple[str, ...]:
    """Return the releases of transformers, within a range, that have this class.

    They are for vLLM's Transformers backend.
    """
    known = _transformers()
    listed = (known["releases"][number] for number in known["classes"].get(architecture, ()))
    return tuple(each for each in listed if _within(each, spec))


def _has_own_class(model: Model, facts: Version) -> bool:
    """Return True where the version has classes for this model and its config.json.

    vLLM has the model's class; for its model type either vLLM or the newest release of transformers
    that it runs with has a configuration. auto_map is not read then
    (vllm-project/vllm 0.26.0:vllm/transformers_utils/config.py HFConfigParser,
    transformers 5.9.0:dynamic_module_utils.py resolve_trust_remote_code; executed with
    DeepSeek-R1).
    """
    if (model.architecture or "") not in facts.classes:
        return False
    kind = model.model_type or ""
    if kind in facts.configs:
        return True
    known, spec = _transformers(), facts.transformers.replace("==", "<=")
    runs = [at for at, each in enumerate(known["releases"]) if _within(each, spec)]
    return bool(runs) and runs[-1] in known["types"].get(kind, ())


def _within(release: str, spec: str) -> bool:
    # few commands compare versions
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(spec).contains(release, prereleases=True)


# The answer


def support_of(
    model: Model,
    engine: str,
    version: str,
    *,
    installed: InstalledLists | None = None,
    quantization: str = "",
    variables: Mapping[str, str] | None = None,
) -> ModelSupport:
    """Return one engine version's support of a model.

    ``installed`` are the lists of the installed engine, which win over the shipped ones.
    ``quantization`` is the user's ``--quantization`` ("": the checkpoint's), ``variables`` the
    engine's environment.
    """
    shipped, given = version_of(engine, version), variables or {}
    facts = _in_force(shipped, installed, engine, version)
    label = (shipped or replace(_NOTHING, engine=engine, version=version)).label
    if model.architecture is None:
        if not model.config:
            return ModelSupport(label)
        return ModelSupport(label, reasons=(message("support.no_architecture", model=model.name),))
    answer = _by_class(model, label, facts, engine)
    if answer.status is SupportStatus.NO or facts is _NOTHING:
        return answer
    answer = replace(
        answer,
        caches=layer_caches(model, facts, given),
        own_class=_has_own_class(model, facts),
    )
    return _with_limits(answer, model, facts, quantization, given)


def _in_force(
    shipped: Version | None, installed: InstalledLists | None, engine: str, version: str
) -> Version:
    """Return the effective facts: the installed engine's lists over the shipped ones.

    `_NOTHING` where there are neither. An installed version without shipped facts is assumed to
    load weights as the newest one with facts does; its classes and methods are its own.
    """
    if installed is None:
        return shipped or _NOTHING
    nearest = shipped or newest_or_none(engine) or replace(_NOTHING, engine=engine)
    classes, configs = frozenset(installed.classes), frozenset(installed.configs)
    methods = installed.methods or nearest.methods
    known = replace(nearest, complete=True, classes=classes, configs=configs, methods=methods)
    known = replace(known, read_from=installed.evidence)
    if installed.transformers:
        known = replace(known, transformers=f"=={installed.transformers}")
    if shipped is None:
        known = replace(known, version=version, removed={}, validated=())
    return known


def _by_class(model: Model, label: str, facts: Version, engine: str) -> ModelSupport:
    """Return the answer that the list of classes gives."""
    architecture = model.architecture or ""
    evidence = facts.evidence
    validated = _validated(model, facts)
    # a plugin's own classes are known even where its vLLM is not
    suffixes = facts.complete and facts.repository not in _WITHOUT_SUFFIXES
    if _has(architecture, facts.classes, suffixes=suffixes):
        runs = ModelSupport(label, SupportStatus.RUNS, evidence=evidence, validated=validated)
        if validated is not None or _has_operators(architecture, facts):
            return runs
        doubt = _no_operators(label, architecture)
        return replace(runs, status=SupportStatus.UNKNOWN, reasons=(doubt,))
    if not facts.complete:
        known = newest(engine).label
        reason = message("support.no_data", engine=label, architecture=architecture, known=known)
        return ModelSupport(label, SupportStatus.UNKNOWN, (reason,), evidence, validated=validated)
    fallback = _fallback(architecture, label, facts)
    if fallback is not None:
        status, reason = fallback
        return ModelSupport(label, status, (reason,), evidence, validated=validated)
    if model.remote_code:
        reason = message(
            "support.own_code", engine=label, model=model.name, architecture=architecture
        )
        return ModelSupport(label, SupportStatus.UNKNOWN, (reason,), evidence, validated=validated)
    reasons = (
        message("support.no_class", engine=label, architecture=architecture),
        *_elsewhere(model, facts),
    )
    return ModelSupport(label, SupportStatus.NO, reasons, evidence, refused=True)


def _has_operators(architecture: str, facts: Version) -> bool:
    """Return False for layers that need other hardware's operators.

    HabanaAI/vllm-fork@95af7009:vllm/_custom_ops.py:1432 calls torch.ops._C for Mamba's.
    """
    if architecture.startswith(_BY_PLATFORM):
        return False
    allocates = facts.cache.get("state", {}).get("allocates")
    # a version without a cache for states is refused by `layer_caches.cache_limits`
    if "state" not in facts.layers.get(architecture, ()) or allocates in ("none", "refused"):
        return True
    if facts.engine != "vllm-gaudi":
        return False
    return any(
        architecture.startswith(classes)
        for since, classes in _STATE_CLASSES.items()
        if is_branch(facts) or version_numbers(facts.version) >= version_numbers(since)
    )


def _fallback(
    architecture: str, label: str, facts: Version
) -> tuple[SupportStatus, Message] | None:
    """Return the answer of vLLM's Transformers backend.

    Return None where it does not have the model.

    The backend exists on HPU as everywhere else: neither the forks' nor the plugin's platform
    excludes it (HabanaAI/vllm-fork@aice/v1.22.0:vllm/model_executor/model_loader/utils.py).
    """
    if not any(name.startswith("Transformers") for name in facts.classes):
        return None
    releases = releases_with(architecture, facts.transformers)
    if releases:
        listed = ", ".join(releases)
        return SupportStatus.LIMITED, message(
            "support.fallback", engine=label, architecture=architecture, releases=listed
        )
    installed = facts.transformers.removeprefix("==")
    if facts.read_from and installed and installed not in _transformers()["releases"]:
        return SupportStatus.UNKNOWN, message(
            "support.other_transformers", engine=label, architecture=architecture, found=installed
        )
    return None


def _has(architecture: str, classes: frozenset[str], *, suffixes: bool) -> bool:
    """Return True for a class of the list, or one that vLLM converts to one."""
    if architecture in classes:
        return True
    ending = next((suffix for suffix in _SUFFIXES if architecture.endswith(suffix)), "")
    if not suffixes or not ending:
        return False
    return any(architecture.replace(ending, other) in classes for other in _SUFFIXES)


def _elsewhere(model: Model, facts: Version) -> tuple[Message, ...]:
    """Return the sentence about versions with this class, or the last vLLM with it."""
    architecture = model.architecture or ""
    until: tuple[Message, ...] = ()
    if architecture in facts.removed:
        removed = facts.removed[architecture]
        until = (message("support.until", architecture=architecture, version=removed),)
    having = [each for each in versions() if each.complete and architecture in each.classes]
    if not having:
        return until or (message("support.nowhere", architecture=architecture),)
    return (*until, *_newest_with(model, having))


def _newest_with(model: Model, having: Iterable[Version]) -> tuple[Message, ...]:
    """Return the sentences about each engine's newest of these versions."""
    newest = {each.engine: each for each in sorted(having, key=is_branch, reverse=True)}
    last = sorted(newest.values(), key=lambda each: each.label, reverse=True)
    since = message("support.since", known=", ".join(each.label for each in last))
    name = model.architecture or ""
    doubtful = (each.label for each in last if not _has_operators(name, each))
    return since, *(_no_operators(label, name) for label in doubtful)


def _no_operators(label: str, architecture: str) -> Message:
    return message("support.no_operators", engine=label, architecture=architecture)


def _with_limits(
    answer: ModelSupport,
    model: Model,
    facts: Version,
    quantization: str,
    variables: Mapping[str, str],
) -> ModelSupport:
    """Return the answer with the limits by quantisation and sparse attention."""
    # how this version dequantises the model
    fitting = (each for each in facts.expanded if each.fits(model))
    expanded = next((each for each in fitting if not each.is_prevented(variables)), _NOT_EXPANDED)
    if expanded is _NOT_EXPANDED:
        method = _unlisted_method(model, facts, quantization)
        if method:
            place = facts.read_from.removesuffix(REGISTRY) or f"{facts.repository}@{facts.commit}"
            known = ", ".join(facts.methods)
            reason = message("support.no_method", engine=answer.engine, method=method, known=known)
            return ModelSupport(
                answer.engine,
                SupportStatus.NO,
                (reason, *_methods_elsewhere(model, method)),
                f"{place}: supported_quantization",
                refused=True,
            )
    refusal = _refused_kernels(answer, model, facts, quantization)
    if refusal:
        return _refused(answer, *refusal)
    compact = runs_compact_gdn(model, facts, variables)
    reasons = list(answer.reasons)
    if expanded is not _NOT_EXPANDED:
        reasons.append(expanded.reason(answer.engine))
    top = _sparse_tokens(model)
    if top and facts.repository:
        reasons.append(message("support.dense", engine=answer.engine, model=model.name, tokens=top))
    if compact:
        reasons.append(message("support.compact_gdn", engine=answer.engine, model=model.name))
    reasons += cache_limits(answer.caches, answer.engine, model)
    # what the makers have tested with this version runs, whatever its classes may contain
    refuses = refuses_layers(answer.caches) and answer.validated is None
    status = answer.status
    if refuses:
        status = SupportStatus.NO
    elif reasons and status is SupportStatus.RUNS:
        status = SupportStatus.LIMITED
    return replace(
        answer,
        status=status,
        refused=refuses,
        reasons=tuple(reasons),
        expanded_to=expanded.to,
        unless=expanded.unless,
        compact_states=compact,
    )


def _refused_kernels(
    answer: ModelSupport, model: Model, facts: Version, quantization: str
) -> tuple[Message, ...]:
    """Return why this version has no kernels for the experts or the sparse attention."""
    loaded = quantization or method_of(model)
    if model.moe and loaded == "modelopt" and loaded in facts.methods:
        # vllm-project/vllm-gaudi@v0.26.0:vllm_gaudi/ops/hpu_modelopt.py:81 raises ValueError
        return (message("support.modelopt_experts", engine=answer.engine),)
    top = _sparse_tokens(model)
    # an engine of which no version has facts says nothing of its platform
    if not top or not facts.repository or facts.sparse_as_dense:
        return ()
    listing = [each for each in versions() if (model.architecture or "") in each.classes]
    having = [each for each in listing if each.sparse_as_dense]
    no = message("support.no_sparse", engine=answer.engine, model=model.name, tokens=top)
    if not having:
        return (no,)
    return (no, *_newest_with(model, having))


def _refused(answer: ModelSupport, *reasons: Message) -> ModelSupport:
    return replace(answer, status=SupportStatus.NO, refused=True, reasons=reasons)


def _sparse_tokens(model: Model) -> int | str:
    """Return the tokens of a layer of sparse attention; 0 for other models.

    By the class alone their number is not known: then the name of the value.
    """
    top = model.config.get("index_topk")
    if model.architecture in _SPARSE_CLASSES:
        return top if isinstance(top, int) else "index_topk"
    return top if isinstance(top, int) and model.mla_rank else 0


def _unlisted_method(model: Model, facts: Version, quantization: str) -> str:
    """Return the quantisation method where this version does not load it, else ""."""
    method = quantization or method_of(model)
    method = facts.renamed.get(method, method)
    if not facts.methods or method in facts.methods or _is_kept(model, facts, method):
        return ""
    return method


def runs_compact_gdn(model: Model, facts: Version | None, variables: Mapping[str, str]) -> bool:
    """Return True where GDN states are in compact slots, without prefix caching.

    It sets VLLM_COMPACT_GDN=1 itself for layers of linear attention unless the user did otherwise
    (vllm-project/vllm-gaudi@b059f9c9:vllm_gaudi/v1/worker/hpu_model_runner.py:1372-1399).
    """
    if facts is None or not facts.compact_gdn:
        return False
    chosen = variables.get("VLLM_COMPACT_GDN", "")
    return has_linear_attention(model) and chosen in ("", "1", "true")


def method_of(model: Model) -> str:
    """Return the engine platform's name of a checkpoint's quantisation method.

    vllm/config.py _verify_quantization: lower case, ``compressed_tensors`` with a hyphen;
    ``modelopt`` without FP8 is named by its algorithm, ``modelopt_fp4`` or ``modelopt_mixed`` (vLLM
    pull 35047). awq and gptq are given as ``awq_hpu`` and ``gptq_hpu`` by our plans.
    """
    method = (model.quantization or "").lower().replace("compressed_tensors", "compressed-tensors")
    settings = mapping(model.config.get("quantization_config"))
    algorithm = str(settings.get("quant_algo", "FP8"))
    if method == "modelopt" and algorithm != "FP8":
        kind = "fp4" if "FP4" in algorithm else algorithm.partition("_")[0].lower()
        return f"modelopt_{kind}"
    return kernels_of(method) or method


def load_switch(model: Model, engine: str, version: str) -> tuple[str, Message] | None:
    """Return the variable that keeps this model's weights quantised, with a reason.

    Return None for a version that has none, or a model that it loads as it is.
    """
    facts = version_of(engine, version) or _NOTHING
    for each in facts.expanded:
        if each.fits(model) and each.unless:
            return each.unless.partition("=")[0], each.reason(f"{engine}@{version}")
    return None


def _is_kept(model: Model, facts: Version, method: str) -> bool:
    """Return True for a method that is dequantised unless a variable prevents it."""
    wanted = (method, model.model_type)
    return any((each.method, each.model_type) == wanted for each in facts.expanded)


def _methods_elsewhere(model: Model, method: str) -> tuple[Message, ...]:
    """Return the sentence about the newest versions that load this method.

    They are one version per engine, for this model.
    """
    having = [
        each for each in versions() if method in each.methods or _is_kept(model, each, method)
    ]
    if not having:
        return (message("support.method_nowhere", method=method),)
    return _newest_with(model, having)


def _validated(model: Model, facts: Version) -> Validated | None:
    """Return the configurations that the makers have tested with this model.

    The model is known by its name.
    """
    wanted = _plain(model.name)
    for each in facts.validated:
        if _plain(str(each["model"]).rpartition("/")[2]) == wanted:
            return Validated(
                tuple(each["cards"]),
                tuple(each["dtypes"]),
                tuple(each["accelerators"]),
                f"{facts.repository}@{facts.commit}: {each['source']}",
            )
    return None


def _plain(name: str) -> str:
    return _PREFIX.sub("", name.lower())
