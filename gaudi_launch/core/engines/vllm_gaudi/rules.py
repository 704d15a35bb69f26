"""vllm-gaudi's variables and options, one function per subject.

Each names its source in the plugin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.generation import is_gaudi2
from gaudi_launch.core.engines.upstream_tasks import (
    CHAT,
    TASK_REASONS,
    by_name_only,
    pooling_options,
    sees_by_name,
    task_of,
)
from gaudi_launch.core.engines.vllm_gaudi import memory as gaudi_memory
from gaudi_launch.core.engines.vllm_gaudi.buckets import state_chunk
from gaudi_launch.core.models.cached_layers import cached_layers, has_linear_attention
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import StateBlocks
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.lengths import BLOCK, reason_for
from gaudi_launch.core.planning.memory import MemoryPlan, check_host_memory
from gaudi_launch.core.planning.plan import Setting, Source
from gaudi_launch.core.planning.precision import kernels_of
from gaudi_launch.core.planning.request import Request

_AT = "vllm-project/vllm-gaudi@091bbadd:"
_PLATFORM = _AT + "vllm_gaudi/platform.py"
RUNNER = _AT + "vllm_gaudi/v1/worker/hpu_model_runner.py"
_WORKER = _AT + "vllm_gaudi/v1/worker/hpu_worker.py"
_LAUNCHER = _AT + ".cd/templates/template_vllm_server.sh"
_VARIABLES = _AT + "docs/configuration/env_variables.md"
_CONTIGUOUS, UNIFIED = "VLLM_CONTIGUOUS_PA", "VLLM_UNIFIED_ATTN"
_DTYPES = ("bfloat16", "float16", "fp8", "awq", "gptq")
# checkpoints that contain 8-bit floats already (config.json's quant_method), and are loaded as they
# are
_FP8_ON_DISK = ("fp8", "compressed-tensors", "modelopt")
# images of one request: warm-up is only done where their number is limited; the value of the
# plugin's own server test (tests/full_tests/gpqa_eval/lm_eval_server.sh)
_IMAGES = 8
# vision towers without predefined shapes to warm up (extension/bucketing/vision.py)
_NO_SHAPES = ("qwen3_5", "kimi_k25", "gemma4")
_SIZES = "VLLM_MULTIMODAL_RESOLUTIONS"
_LONG = 32768
# vllm-project/vllm-gaudi@b059f9c9:vllm_gaudi/platform.py: mamba_d_chunk without one in config.json
_CHUNK = 256
_CONTIGUOUS_OFF = "--no-enable-prefix-caching"
_COMPACT_GDN = "vllm-project/vllm-gaudi@b059f9c9:vllm_gaudi/v1/worker/hpu_model_runner.py:1393"
_UNIFIED_RUNNER = "vllm-project/vllm-gaudi@v0.17.1:vllm_gaudi/v1/worker/hpu_model_runner.py:1118"
_FOUND_SOURCES: Mapping[str, Source] = {"profile": "profile"}
_SPECULATION = ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens")


def is_contiguous(settings: Sequence[Setting]) -> bool:
    """Return True if these settings turn contiguous paged attention on."""
    return any(s.name == _CONTIGUOUS and boolean(s.value or "") for s in settings)


def needs_quant_file(request: Request, model: Model) -> bool:
    """Return True if this deployment reads a QUANT_CONFIG.

    Weights that are fp8 on disk run without, unless one is named.
    """
    named = bool(request.quant_config or request.environment.get("QUANT_CONFIG"))
    return named or (request.dtype == "fp8" and model.quantization not in _FP8_ON_DISK)


def check(request: Request, model: Model) -> None:
    """Raise LaunchError for incompatible options, or options that the weights forbid."""
    contiguous = boolean(request.environment.get(_CONTIGUOUS, ""))
    if contiguous and request.args.has("--enable-prefix-caching"):
        raise LaunchError("gaudi.contiguous", ExitCode.USAGE, other="--enable-prefix-caching")
    if request.dtype is not None and request.dtype not in _DTYPES:
        raise LaunchError(
            "plan.dtype", ExitCode.USAGE, found=request.dtype, known=", ".join(_DTYPES)
        )
    if model.quantization is not None and needs_quant_file(request, model):
        # neural compressor makes fp8 of bfloat16 weights (docs/configuration/quantization/inc.md)
        raise LaunchError(
            "gaudi.quantised_twice", ExitCode.USAGE, model=model.name, found=model.quantization
        )


def address(context: Context, decisions: Decisions) -> None:
    """Propose the address to listen on, and the model's name in requests."""
    request = context.request
    decisions.option_or("--host", ("-u", request.host), ("127.0.0.1", message("gaudi.host")))
    decisions.option_or("--port", ("-p", request.port), (30001, message("gaudi.port")))
    decisions.option_of("--served-name", "--served-model-name", request.served_name or None)
    model = context.model
    if request.trust_remote_code and model.remote_code is not False:
        decisions.option("--trust-remote-code", None, message("plan.agreed"), source="flag")
    elif request.trust_remote_code:
        decisions.warn("plan.remote_code_unneeded", model=model.name)


def lengths(context: Context, decisions: Decisions) -> None:
    """Propose the lengths, because none of the engine's defaults fits.

    They are the model's full length, and a number of requests by the card's memory, which the
    plugin reports as 0 (platform.py get_device_total_memory).
    """
    request, limits = context.request, context.limits
    decisions.option_or(
        "--max-model-len",
        ("-l", request.max_model_len),
        (limits.max_model_len, message("gaudi.length")),
    )
    reason = reason_for(request, limits.max_model_len)
    if reason is not None:
        decisions.explain("option", "--max-model-len", reason)
    decisions.option_or(
        "--max-num-seqs",
        ("-b", request.max_num_seqs),
        (limits.max_num_seqs, message("gaudi.seqs")),
        origin=_PLATFORM,
    )
    why = message("gaudi.tokens")
    if task_of(context.model, request.args) != CHAT:
        why = message("gaudi.whole_texts")
    decisions.option_or(
        "--max-num-batched-tokens",
        ("-t", request.max_num_batched_tokens),
        (limits.max_num_batched_tokens, why),
        origin=_AT + ".cd/server/settings_vllm.csv",
    )
    step, given = limits.max_num_batched_tokens, request.max_num_batched_tokens
    for option, flag, asked, served in (
        ("--max-model-len", "-l", request.max_model_len, limits.max_model_len),
        ("--max-num-batched-tokens", "-t", given, step),
    ):
        if asked not in (None, served):
            reason = message("gaudi.whole_blocks", flag=flag, asked=asked)
            decisions.option(option, str(served), reason, source="flag")
    decisions.option(
        "--block-size",
        str(limits.block_size),
        message("gaudi.block"),
        source="engine",
        origin=_PLATFORM,
    )


def cards(context: Context, decisions: Decisions) -> None:
    """Propose the chosen cards, one process each."""
    request, modules, tensor = context.request, context.placement.modules, context.placement.tensor
    source: Source = "computed"
    placed = reason = message("plan.placement")
    if request.modules is not None:
        source, reason = "flag", message("plan.flag", flag="-m")
    decisions.force_env(
        "HABANA_VISIBLE_MODULES",
        ",".join(str(module) for module in modules),
        reason,
        source=source,
        origin=_PLATFORM,
    )
    decisions.option_or("--tensor-parallel-size", ("-n", request.cards), (tensor, placed))
    if request.cards not in (None, tensor):
        decisions.option("--tensor-parallel-size", str(tensor), placed, source="flag")
    if len(modules) > 1:
        reason = message("gaudi.processes")
        decisions.option("--distributed-executor-backend", "mp", reason, origin=_VARIABLES)
        decisions.env(
            "VLLM_WORKER_MULTIPROC_METHOD", "spawn", message("gaudi.spawn"), origin=_PLATFORM
        )


def mode(context: Context, decisions: Decisions) -> None:
    """Propose torch.compile unless PT_HPU_LAZY_MODE=1 was exported.

    It is the plugin's default, and the only mode of upstream PyTorch builds
    (docs/getting_started/quickstart/quickstart_configuration.md).
    """
    decisions.env("PT_HPU_LAZY_MODE", "0", message("gaudi.compile"), origin=_VARIABLES)
    decisions.env(
        "PT_HPU_WEIGHT_SHARING",
        "0",
        message("gaudi.weight_sharing"),
        source="engine",
        origin=_PLATFORM,
    )
    if decisions.get("env", "PT_HPU_LAZY_MODE") == "1":
        if len(context.placement.modules) > 1:
            reason = message("gaudi.lazy_collectives")
            decisions.env("PT_HPU_ENABLE_LAZY_COLLECTIVES", "true", reason, origin=_PLATFORM)
        return
    decisions.env("PT_ENABLE_INT64_SUPPORT", "0", message("gaudi.bridge"), origin=_LAUNCHER)
    decisions.env("PT_HPU_ENABLE_EAGER_CACHE", "true", message("gaudi.bridge"), origin=_LAUNCHER)


def types(context: Context, decisions: Decisions) -> None:
    """Propose the compute type, and quantised weights in the platform's spelling."""
    request, model = context.request, context.model
    if request.dtype == "float16":
        decisions.warn("gaudi.float16")
    decisions.option("--dtype", "bfloat16", message("gaudi.bfloat16"), origin=_PLATFORM)
    if request.dtype == "bfloat16":
        decisions.option_of("-d", "--dtype", "bfloat16", origin=_PLATFORM)
    quantised = (request.dtype, model.quantization)
    found = next((each for each in quantised if kernels_of(each)), None)
    if found is not None:
        decisions.option(
            "--quantization",
            kernels_of(found),
            message("gaudi.hpu_kernels", found=found),
            origin=_PLATFORM,
        )
    if needs_quant_file(request, model):
        _measured(context, decisions)
    if model.converted and is_gaudi2(context):
        # other checkpoints are rescaled at load (extension/ops.py gaudi_weight_wrapper), these were
        # rescaled before
        origin = _AT + "vllm_gaudi/extension/features.py"
        decisions.env("VLLM_SCALE_ADJUSTMENT", "false", message("quant.converted"), origin=origin)


def first_steps(context: Context, decisions: Decisions) -> None:
    """Propose the time of a step that may compile, which several processes wait for.

    Every release takes it from vllm/v1/executor/multiproc_executor.py (0.11.2 to 0.26.0), and no
    other timeout.
    """
    compiles = needs_quant_file(context.request, context.model)
    long = context.limits.max_model_len >= _LONG
    if len(context.placement.modules) > 1 and (compiles or long):
        origin = "vllm-project/vllm 0.26.0:vllm/v1/executor/multiproc_executor.py"
        reason = message("gaudi.patience")
        decisions.env("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "3600", reason, origin=origin)


def _measured(context: Context, decisions: Decisions) -> None:
    """Propose fp8 by neural compressor: the QUANT_CONFIG, and its settings.

    The file was named, or found on this machine.
    """
    docs = _AT + "docs/configuration/quantization/inc.md"
    request, found = context.request, context.request.quant_file
    exported = request.environment.get("QUANT_CONFIG")
    if request.quant_config:
        decisions.switch_of(
            "--quant-config", "QUANT_CONFIG", request.quant_config, given=True, origin=docs
        )
    elif exported:
        decisions.env("QUANT_CONFIG", exported, message("plan.exported"), origin=docs)
    elif found is not None:
        source = _FOUND_SOURCES.get(found.origin, "computed")
        decisions.env("QUANT_CONFIG", found.path, found.reason, source=source, origin=found.path)
    decisions.option("--quantization", "inc", message("gaudi.inc"), origin=docs)
    # platform.py check_and_update_config loads the weights on the CPU wherever INC is on
    check_host_memory(context, decisions)
    cache, why = "fp8_inc", "gaudi.fp8_cache"
    if found is not None:
        cache, why = found.kv_dtype, "quant.kv_dtype"
    decisions.option("--kv-cache-dtype", cache, message(why), origin=docs)
    if decisions.get("env", "PT_HPU_LAZY_MODE") != "1":
        scales = message("gaudi.scales")
        decisions.env("RUNTIME_SCALE_PATCHING", "1", scales, source="engine", origin=_PLATFORM)


def cache_arguments(model: Model) -> tuple[str, ...]:
    """Return the arguments of an fp8 KV cache for weights with its scales.

    Every release from 0.10.0 on allocates it without a QUANT_CONFIG (enable_fp8_attn in
    vllm_gaudi/attention/backends/hpu_attn.py of vllm-project/vllm-gaudi@v0.10.0 and @v0.26.0). Its
    makers test it with weights that have scales of the cache (Qwen3-8B-FP8_STATIC-FP8-Attn and
    nvidia/Llama-3.1-8B-Instruct-FP8 in @091bbadd:tests/full_tests/ci_e2e_discoverable_tests.sh).
    compressed-tensors states them as kv_cache_scheme, modelopt as kv_cache_quant_algo.
    """
    stored = model.config.get("quantization_config")
    if not isinstance(stored, Mapping):
        return ()
    if stored.get("kv_cache_scheme") or stored.get("kv_cache_quant_algo") == "FP8":
        return ("--kv-cache-dtype", "fp8_inc")
    return ()


def need_in(context: Context) -> gaudi_memory.Need:
    """Return what the model needs of a card besides weights and cache."""
    tokens = context.limits.max_num_batched_tokens
    return gaudi_memory.need_of(context.model, context.placement.tensor, tokens)


def utilization(context: Context, decisions: Decisions, found: MemoryPlan) -> None:
    """Propose the engine's share of the card's memory that is free after the weights."""
    asked, need = context.request.memory_utilization, need_in(context)
    share, reason = gaudi_memory.MOST_UNKNOWN, message("gaudi.utilization")
    if found.gib:
        beside = found.gib["card"] - found.gib["weights"]
        share = gaudi_memory.utilization(beside, need)
        reason = _share_reason(beside * (1 - share), need)
    decisions.option("--gpu-memory-utilization", f"{share:g}", reason, origin=gaudi_memory.ORIGIN)
    decisions.option_of("--memory-utilization", "--gpu-memory-utilization", asked, origin=_WORKER)
    decisions.env(
        "VLLM_GRAPH_RESERVED_MEM", "0.1", message("gaudi.reserved"), source="engine", origin=_WORKER
    )


def _share_reason(left: float, need: gaudi_memory.Need) -> Message:
    """Return the reason for a share that leaves ``left`` GiB of a card free."""
    free, needed = f"{max(0.0, left):.1f}", f"{need.free_gib:.1f}"
    if left < need.free_gib - 0.05:
        return message("gaudi.utilization_least", free=free, needed=needed)
    if need.known:
        return message("gaudi.utilization_known", free=needed)
    return message("gaudi.utilization_assumed", free=needed)


def reserved(context: Context, decisions: Decisions, found: MemoryPlan, graphs: int) -> None:
    """Propose the part of that share that is reserved for this number of graphs.

    The engine's default of a tenth for a model outside the table.
    """
    need = need_in(context)
    if not found.gib or not need.known:
        return
    lazy = decisions.get("env", "PT_HPU_LAZY_MODE") == "1"
    usable = found.gib["card"] - found.gib["weights"] - found.gib["free"]
    share = gaudi_memory.reserved(usable, graphs, need, lazy)
    reason = message("gaudi.reserved_counted", graphs=graphs, size=f"{need.graph_mib:g}")
    decisions.env("VLLM_GRAPH_RESERVED_MEM", f"{share:g}", reason, origin=gaudi_memory.ORIGIN)


def caches_states(args: EngineArgs, variables: Mapping[str, str], release: Version) -> bool:
    """Return True where prefixes of a model with states are cached.

    vllm-project/vllm 0.26.0:vllm/engine/arg_utils.py default_prefix_caching.
    """
    if args.has(_CONTIGUOUS_OFF) or boolean(variables.get(_CONTIGUOUS, "")):
        return False
    return release.hybrid_prefixes or args.has("--enable-prefix-caching")


def caches_prefixes(request: Request, model: Model, release: Version) -> bool:
    """Return True where prefixes are cached: for states only where the release does."""
    args, variables = request.args, request.environment
    if cached_layers(model).get("state"):
        return caches_states(args, variables, release)
    return not (args.has(_CONTIGUOUS_OFF) or boolean(variables.get(_CONTIGUOUS, "")))


def plans_prefixes(settings: Sequence[Setting], context: Context, release: Version) -> bool:
    """Return True where the engine of these settings caches prefixes."""
    return not is_contiguous(settings) and caches_prefixes(context.request, context.model, release)


def state_blocks(
    model: Model, release: Version, *, compact: bool, caches: bool
) -> StateBlocks | None:
    """Return how the release puts states and keys of this model into blocks.

    None for a release without blocks of states, and a model without states. With prefix caching a
    block is aligned to the chunks of a state, and a request has two states of a layer
    (`facts.reading.state_blocks`;
    vllm-project/vllm 0.26.0:vllm/v1/kv_cache_interface.py MambaSpec).
    """
    rules, kind = release.state_blocks, model.model_type
    if not rules or not cached_layers(model).get("state"):
        return None
    fine, step = rules["fine"] in ("all", kind), BLOCK
    if fine:
        step = 16
    linear = has_linear_attention(model)
    if caches and (fine or rules.get("chunked")) and not linear:
        step = math.lcm(step, state_chunk(model) or _CHUNK)
    counted = rules["buckets"] in ("all", kind) or (fine and rules["buckets"] == "decode")
    counted = counted and not linear
    return StateBlocks(step, counted, rules["apart"] and not compact, 2 if caches else 1)


def attention(
    context: Context, decisions: Decisions, task: str, release: Version, *, compact_gdn: bool
) -> None:
    """Propose prefix caching (the engine's default) or contiguous paged attention.

    The engine supports one of them. ``compact_gdn``: its slots for GDN states have no prefix
    caching, so neither is proposed.
    """
    request = context.request
    if UNIFIED in request.unmodelled:
        # hpu_model_runner.py ends with an AssertionError without; it keeps prefix caching
        decisions.env(_CONTIGUOUS, "true", message("gaudi.unified"), origin=_UNIFIED_RUNNER)
        return
    if (
        compact_gdn
        and task == CHAT
        and not request.args.has("--enable-prefix-caching", _CONTIGUOUS_OFF)
    ):
        reason = message("gaudi.compact_gdn", model=context.model.name)
        decisions.env(_CONTIGUOUS, "false", reason, origin=_COMPACT_GDN)
        decisions.option(_CONTIGUOUS_OFF, None, reason, origin=_COMPACT_GDN)
        return
    off = request.args.has("--no-enable-prefix-caching")
    exported = request.environment.get(_CONTIGUOUS, "")
    if task != CHAT and not exported:
        # tests/full_tests/ci_e2e_discoverable_tests.sh runs pooling models without it
        decisions.env(
            _CONTIGUOUS,
            "false",
            message("gaudi.pooling_attention"),
            origin=_AT + "tests/full_tests",
        )
        return
    if off:
        decisions.env(_CONTIGUOUS, "true", message("gaudi.no_prefix"), origin=_PLATFORM)
    elif cached_layers(context.model).get("state") and not caches_states(request.args, {}, release):
        reason = message("gaudi.hybrid_prefix", engine=release.label, model=context.model.name)
        decisions.env(_CONTIGUOUS, "true", reason, origin=_PLATFORM)
    else:
        decisions.env(_CONTIGUOUS, "false", message("gaudi.prefix"), origin=_PLATFORM)
    if boolean(decisions.get("env", _CONTIGUOUS) or ""):
        decisions.env(
            "VLLM_DEFRAG",
            "true",
            message("gaudi.defrag"),
            source="engine",
            origin=_AT + "vllm_gaudi",
        )
        if not off:
            reason = message("gaudi.prefix_off")
            decisions.option("--no-enable-prefix-caching", None, reason, origin=_LAUNCHER)


def experts(context: Context, decisions: Decisions) -> None:
    """Propose expert parallelism over the cards; on one card it does nothing."""
    model = context.model
    if len(context.placement.modules) < 2:
        return
    if model.moe:
        reason = message("plan.moe", experts=model.experts or "?")
        origin = _AT + "tests/full_tests/model_cards/Qwen3-30B-A3B.yaml"
        decisions.option("--enable-expert-parallel", None, reason, origin=origin)
    elif model.moe is None and model.name:
        decisions.warn("plan.moe_unknown", model=model.name)


def task(context: Context, decisions: Decisions, task: str) -> None:
    """Propose asynchronous scheduling for chat models, the pooling runner for others.

    With the former the next step is scheduled while the last one runs.
    """
    args = context.request.args
    if task == CHAT:
        pipeline = (
            "--pipeline-parallel-size",
            "-pp",
            "--no-async-scheduling",
            "--async-scheduling",
        )
        ray = args.last("--distributed-executor-backend") == "ray"
        # with contiguous attention both are wrong until 0.24.0 (vllm-project/vllm-gaudi#1546)
        unified = UNIFIED in context.request.unmodelled
        if not ray and not unified and not args.has(*_SPECULATION, *pipeline):
            decisions.option("--async-scheduling", None, message("gaudi.async"), origin=_LAUNCHER)
        return
    if by_name_only(context.model) and not args.has("--runner", "--convert"):
        decisions.warn("gaudi.task_by_name", model=context.model.name, task=task)
    for option, value in pooling_options(context.model, task):
        if not args.has(option):
            reason = message(TASK_REASONS[task])
            decisions.option(
                option, value, reason, origin="vllm-project/vllm 0.32.0:vllm/config/model.py"
            )


def vision(context: Context, decisions: Decisions, reads: Callable[[str], bool]) -> None:
    """Propose the warm-up of images, which needs a limited number of them.

    Some towers also need named sizes. ``reads``: the variables of this release.
    """
    model, request = context.model, context.request
    if "vision" not in model.multimodal:
        return
    if sees_by_name(model):
        decisions.warn("engines.vision_by_name", model=model.name)
    limit = "--limit-mm-per-prompt"
    if not request.args.has(limit, "--language-model-only"):
        reason = message("gaudi.images", count=_IMAGES)
        decisions.option(limit, f'{{"image":{_IMAGES}}}', reason, origin=RUNNER)
    kind = (model.model_type or "").lower()
    if not kind.startswith(_NO_SHAPES):
        return
    if not reads(_SIZES):
        decisions.warn("gaudi.vision_cold_only", model=model.name)
    elif not request.environment.get(_SIZES):
        decisions.warn("gaudi.vision_cold", model=model.name)


def switches(context: Context, decisions: Decisions) -> None:
    """Propose the user's switches."""
    request = context.request
    for asked, name, value, flag in (
        (request.skip_warmup, "VLLM_SKIP_WARMUP", "true", "-s"),
        (request.profile, "VLLM_PROFILER_ENABLED", "true", "-f"),
        (request.no_fused_sdpa, "VLLM_PROMPT_USE_FUSEDSDPA", "false", "-a"),
    ):
        decisions.switch_of(flag, name, value, given=asked, origin=_VARIABLES)
