"""Environment and options by the 1.22 start script, rule for rule.

HabanaAI/vllm-fork@17a7946f4 (aice/v1.22.0): scripts/start_gaudi_vllm_server.sh, scripts/utils.sh.
"""

from __future__ import annotations

from gaudi_launch.core.engines.base import base_name
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.lengths import ceil_div, round_up
from gaudi_launch.core.planning.precision import asked_fp8
from gaudi_launch.extensions.vllm_fork.scripts_shared import (
    NO_EXPERT_PARALLEL,
    QWEN2_7B,
    Script,
    check_dtype,
    device_name,
)

ORIGIN = "HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh"

# variables that are always exported unless the user did: variable, value
_COMMON = (
    ("PT_HPU_LAZY_MODE", "1"),
    ("VLLM_GRAPH_RESERVED_MEM", "0.1"),
    ("VLLM_DELAYED_SAMPLING", "true"),
    ("TOKENIZERS_PARALLELISM", "true"),
    ("VLLM_SERVER_DEV_MODE", "1"),
    ("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", "0"),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),
    ("VLLM_EXPONENTIAL_BUCKETING", "false"),
)


def rules(context: Context, decisions: Decisions) -> None:
    """Propose every variable and option of the script of aice/v1.22.0.

    scripts/start_gaudi_vllm_server.sh. The user's arguments after ``--`` go where the script puts
    those of its -e: before our additional ones.
    """
    request, limits = context.request, context.limits
    cards = context.placement.tensor
    name = base_name(request.model)
    lower = name.lower()
    dtype = "fp8" if asked_fp8(request) else request.dtype or "bfloat16"
    check_dtype(dtype)
    script = Script(context, decisions, ORIGIN)
    for variable, value in _COMMON:
        script.default(variable, value)
    if cards > 1:
        script.force("PT_HPU_ENABLE_LAZY_COLLECTIVES", "true", "-t > 1")
    script.network(host_ip=request.host or "127.0.0.1")
    script.visible_modules()
    if dtype == "fp8":
        script.fp8_weights(lower)
    _buckets(script)
    script.switches(true="true", cache_mib=40960)
    if request.profile:
        length = request.max_model_len or 16384
        case = (
            f"serve_{name}_{dtype}_{device_name(context)}_len{length}_bs{limits.max_num_seqs}"
            f"_tp{cards}_{request.stamp}"
        )
        script.profile(case, true="true")
    script.force("VLLM_ZERO_PADDING", "true")
    if any(part in lower for part in QWEN2_7B):
        script.force("VLLM_FP32_SOFTMAX", "true", name)
    _argv(script, lower, dtype, cards)


def _buckets(script: Script) -> None:
    limits = script.context.limits
    block = limits.block_size
    limit = script.context.request.padding_limit
    ratio = ("0.25", "") if limit is None else (limit, "--padding-limit")
    even = round_up(limits.max_num_seqs, 2)
    blocks = round_up(ceil_div(limits.max_model_len, block) * even, block)
    prefill = limits.max_num_prefill_seqs
    for dimension, least, step, most, rule in (
        ("PROMPT_BS", 1, 1, prefill, "--max-num-prefill-seqs"),
        ("PROMPT_SEQ", block, block, limits.max_model_len, "--max-model-len"),
        ("DECODE_BS", 1, 2, even, "ceil(-b, 2)"),
        ("DECODE_BLOCK", block, block, blocks, "ceil(ceil(len / 128) * decode_bs_max, 128)"),
    ):
        script.buckets(dimension, (least, ""), (step, ""), (most, rule), ratio)


def _argv(script: Script, lower: str, dtype: str, cards: int) -> None:
    request, limits, add = script.context.request, script.context.limits, script.option
    add("--block-size", limits.block_size)
    add("--host", request.host or "127.0.0.1", "-u")
    add("--port", request.port or 30001, "-p")
    add("--model", request.model, "-w")
    add("--dtype", "bfloat16")
    add("--max-num-seqs", limits.max_num_seqs, "-b")
    add("--max-num-prefill-seqs", limits.max_num_prefill_seqs, "--max-prefill-seqs")
    add("--max-num-batched-tokens", limits.max_num_batched_tokens, rule="max(ceil(len, 128), 2048)")
    add("--max-seq-len-to-capture", request.max_capture_len or 8192, "--max-capture-len")
    add("--gpu-memory-utilization", request.memory_utilization or "0.9", "--memory-utilization")
    add("--max-model-len", limits.max_model_len, "-l")
    add("--tensor-parallel-size", cards, "-n")
    add("--trust-remote-code", None)
    add("--seed", 2025)
    add("--distributed_executor_backend", "ray" if cards > 8 else "mp")
    if dtype in ("awq", "gptq"):
        add("--quantization", f"{dtype}_hpu", "-d")
    if not request.profile:
        add("--disable-log-requests", None)
    if NO_EXPERT_PARALLEL not in lower:
        add("--enable-expert-parallel", None)
