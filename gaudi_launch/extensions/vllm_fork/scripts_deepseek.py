"""Environment and options by the DeepSeek-R1 start script, rule for rule.

It overrides what the user exported.

HabanaAI/vllm-fork@016b6bd20 (deepseek_r1): scripts/quickstart/start_vllm.sh.
"""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.extensions.vllm_fork.scripts_shared import Script, device_name, script_rule

ORIGIN = "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/start_vllm.sh"

# start_vllm.sh exports these in any case
_FIXED = (
    ("HABANA_VISIBLE_DEVICES", "ALL"),
    ("PT_HPU_ENABLE_LAZY_COLLECTIVES", "true"),
    ("VLLM_RAY_DISABLE_LOG_TO_DRIVER", "1"),
    ("RAY_IGNORE_UNHANDLED_ERRORS", "1"),
    ("PT_HPU_WEIGHT_SHARING", "0"),
    ("PT_HPUGRAPH_DISABLE_TENSOR_CACHE", "1"),
    ("PT_HPU_LAZY_MODE", "1"),
    ("VLLM_GRAPH_RESERVED_MEM", "0.1"),
    ("VLLM_GRAPH_PROMPT_RATIO", "0"),
    ("VLLM_MLA_DISABLE_REQUANTIZATION", "0"),
    ("VLLM_DELAYED_SAMPLING", "true"),
    ("VLLM_MLA_PERFORM_MATRIX_ABSORPTION", "0"),
)
_INC = (
    ("VLLM_REQUANT_FP8_INC", "1"),
    ("VLLM_ENABLE_RUNTIME_DEQUANT", "1"),
    ("VLLM_HPU_MARK_SCALES_AS_CONST", "false"),
    ("INC_FORCE_NAIVE_SCALING", "1"),
)


def rules(context: Context, decisions: Decisions) -> None:
    """Propose every variable and option of scripts/quickstart/start_vllm.sh.

    It overrides the user's.
    """
    request, limits = context.request, context.limits
    cards = context.placement.tensor
    script = Script(context, decisions, ORIGIN)
    for variable, value in _FIXED:
        script.force(variable, value)
    modules = ",".join(str(module) for module in context.placement.modules)
    decisions.force_env(
        "HABANA_VISIBLE_MODULES",
        modules,
        message("plan.placement"),
        source="computed",
        origin=ORIGIN,
    )
    script.force("VLLM_EP_SIZE", cards)
    utilisation = "0.85" if limits.max_model_len <= 18432 else "0.65"
    script.force("VLLM_GPU_MEMORY_UTILIZATION", utilisation, "0.85; 0.65 over 18432")
    script.flag("VLLM_MOE_N_SLICE", "1" if request.inc_fp8 else "8", "-q", given=False)
    if request.inc_fp8:
        for variable, value in _INC:
            script.flag(variable, value, "-q")
        _quantisation_paths(script)
    cache = "/data/warmup_cache" if request.cache_dir is None else request.cache_dir
    if cache:
        value, given = f"{cache},false,16384", request.cache_dir is not None
        script.flag("PT_HPU_RECIPE_CACHE_CONFIG", value, "-c", given=given)
    if request.skip_warmup:
        script.flag("VLLM_SKIP_WARMUP", "True", "-s")
    _buckets(script)
    _argv(script, cards, utilisation)


def _quantisation_paths(script: Script) -> None:
    # start_vllm.sh is in scripts/quickstart: its measurements are two folders up, its configs one
    # folder up
    request = script.context.request
    scripts = request.scripts_dir or "scripts/quickstart"
    up = "."
    if "/" in scripts.rstrip("/"):
        up = scripts.rstrip("/").rsplit("/", 1)[0]
    top = "."
    if "/" in up:
        top = up.rsplit("/", 1)[0]
    ours = f"{up}/quant_configs/inc_quant_per_channel_with_fp8kv_config.json"
    script.flag("QUANT_CONFIG", request.quant_config or ours, "-q")
    script.flag("INC_MEASUREMENT_DUMP_PATH_PREFIX", top or "/", "-q")


def _buckets(script: Script) -> None:
    limits, request = script.context.limits, script.context.request
    exported = request.environment.get("BUCKET_PADDING_RATIO")
    if exported:
        script.decisions.env("BUCKET_PADDING_RATIO", exported, script_rule())
    usual = 8
    if device_name(script.context).startswith("HL-288"):
        usual = 2
    seqs, length = limits.max_num_seqs, limits.max_model_len
    rule = "min(-b, 2 on PCIe boxes, else 8)"
    for dimension, least, step, most, why in (
        ("PROMPT_BS", 1, 1, limits.max_num_prefill_seqs, "--max-num-prefill-seqs"),
        ("PROMPT_SEQ", 128, 128, limits.max_num_batched_tokens, "--max-num-batched-tokens"),
        ("DECODE_BS", 1, min(seqs, usual), seqs, rule),
        ("DECODE_BLOCK", 128, 128, max(seqs * length // 128, 128), "max(-b * -l / 128, 128)"),
    ):
        script.force(f"VLLM_{dimension}_BUCKET_MIN", least)
        script.force(f"VLLM_{dimension}_BUCKET_STEP", step)
        script.force(f"VLLM_{dimension}_BUCKET_MAX", most, why)
        limit = f"VLLM_{dimension}_BUCKET_LIMIT"
        if request.padding_limit is None:
            script.force(limit, exported or "0.25")
        else:
            script.flag(limit, request.padding_limit or exported or "0.25", "--padding-limit")


def _argv(script: Script, cards: int, utilisation: str) -> None:
    request, limits, add = script.context.request, script.context.limits, script.option
    add("--host", request.host or "0.0.0.0", "-u")
    add("--port", request.port or 8688, "-p")
    add("--block-size", limits.block_size)
    add("--model", request.model, "-w")
    add("--device", "hpu")
    add("--dtype", "bfloat16")
    add("--kv-cache-dtype", "fp8_inc")
    add("--tensor-parallel-size", cards, "-n")
    add("--max-num-prefill-seqs", limits.max_num_prefill_seqs, "--max-prefill-seqs")
    add("--trust-remote-code", None)
    add("--max-model-len", limits.max_model_len, "-l")
    add("--max-num-seqs", limits.max_num_seqs, "-b")
    add("--max-num-batched-tokens", limits.max_num_batched_tokens)
    add("--use-padding-aware-scheduling", None)
    add("--use-v2-block-manager", None)
    add("--distributed_executor_backend", "ray")
    add("--gpu_memory_utilization", utilisation)
    add("--disable-log-requests", None)
    add("--enable-reasoning", None)
    add("--reasoning-parser", "deepseek_r1")
