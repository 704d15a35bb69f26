"""Environment and options by the 1.21 start script, rule for rule.

HabanaAI/vllm-fork@277a33cd9 (aice/v1.21.0): scripts/start_gaudi_vllm_server.sh, scripts/utils.sh.
"""

from __future__ import annotations

from gaudi_launch.core.engines.base import base_name
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.lengths import ceil_div, round_up
from gaudi_launch.extensions.vllm_fork.scripts_shared import (
    NO_EXPERT_PARALLEL,
    NO_FP32_SOFTMAX,
    QWEN2_7B,
    Script,
    check_dtype,
    device_name,
)

ORIGIN = "HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh"

# variables that are always exported unless the user did: variable, value
_COMMON = (
    ("PT_HPU_WEIGHT_SHARING", "0"),
    ("PT_HPU_LAZY_MODE", "1"),
    ("VLLM_GPU_MEMORY_UTILIZATION", "0.9"),
    ("VLLM_GRAPH_RESERVED_MEM", "0.2"),
    ("VLLM_GRAPH_PROMPT_RATIO", "0.8"),
    ("VLLM_MAX_SEQ_LEN_TO_CAPTURE", "8192"),
    ("VLLM_DELAYED_SAMPLING", "true"),
    ("VLLM_DYNAMIC_MOE_MIN_TOKENS", "256"),
    ("VLLM_DYNAMIC_MOE_MIN_EXPERTS_SINGLEHPU", "32"),
    ("VLLM_PROFILER_ENABLED", "false"),
    ("VLLM_ENGINE_PROFILER_ENABLED", "false"),
    ("VLLM_ENGINE_PROFILER_WARMUP_STEPS", "0"),
    ("VLLM_ENGINE_PROFILER_STEPS", "1"),
    ("VLLM_ENGINE_PROFILER_REPEAT", "1"),
    ("VLLM_WORKER_MULTIPROC_METHOD", "spawn"),
    ("TOKENIZERS_PARALLELISM", "true"),
    ("RAY_IGNORE_UNHANDLED_ERRORS", "1"),
    ("VLLM_RAY_DISABLE_LOG_TO_DRIVER", "1"),
)


def rules(context: Context, decisions: Decisions) -> None:
    """Propose every variable and option of the script of aice/v1.21.0.

    scripts/start_gaudi_vllm_server.sh.
    """
    request, limits = context.request, context.limits
    cards = context.placement.tensor
    name = base_name(request.model)
    lower = name.lower()
    dtype = request.dtype or "bfloat16"
    check_dtype(dtype)
    script = Script(context, decisions, ORIGIN)
    script.visible_modules()
    for variable, value in _COMMON:
        script.default(variable, value)
    script.default("VLLM_EP_SIZE", cards, "-n")
    if cards > 1:
        script.force("PT_HPU_ENABLE_LAZY_COLLECTIVES", "true", "-n > 1")
    script.network()
    _buckets(script)
    _tuning(script, name, dtype, cards)
    if request.reduce is not None:
        _reduce(script, request.reduce)
    _argv(script, lower, dtype, cards)
    if limits.input_min == limits.input_max and "input" not in request.open_ranges:
        script.force("VLLM_ZERO_PADDING", "false", "input_min = input_max")


def _buckets(script: Script) -> None:
    limits = script.context.limits
    block = limits.block_size
    batches = min(limits.max_num_batched_tokens // limits.input_min, limits.max_num_seqs)
    step = min(ceil_div(limits.max_num_seqs, 16), 16)
    most = round_up(limits.max_num_seqs, step)
    least_blocks = round_up(ceil_div(limits.input_min, block), block)
    most_blocks = (ceil_div(limits.input_max + limits.output_max, block) + 1) * most
    script.buckets("PROMPT_BS", (1, ""), (1, ""), (batches, "min(-t / input_min, -b)"))
    script.buckets(
        "PROMPT_SEQ",
        (round_up(limits.input_min, block), "ceil(input_min, 128)"),
        (block, ""),
        (round_up(limits.input_max, block) + block, "ceil(input_max, 128) + 128"),
    )
    script.buckets("DECODE_BS", (1, ""), (step, "min(ceil(-b / 16), 16)"), (most, "ceil(-b, step)"))
    script.buckets(
        "DECODE_BLOCK",
        (least_blocks, "ceil(ceil(input_min / 128), 128)"),
        (block, ""),
        (
            round_up(most_blocks, block),
            "ceil((ceil((input_max + output_max) / 128) + 1) * decode_bs_max, 128)",
        ),
    )


def _tuning(script: Script, name: str, dtype: str, cards: int) -> None:
    request, limits, lower = script.context.request, script.context.limits, name.lower()
    script.switches(true="True", cache_mib=16384)
    if request.profile:
        input_top = "" if "input" in request.open_ranges else limits.input_max
        output_top = "" if "output" in request.open_ranges else limits.output_max
        case = (
            f"serve_{name}_{dtype}_{device_name(script.context)}_in{limits.input_min}-{input_top}"
            f"_out{limits.output_min}-{output_top}_bs{limits.max_num_seqs}_tp{cards}"
            f"_steps{request.scheduler_steps or 1}_{request.stamp}"
        )
        script.profile(case, true="True")
    for variable, off, switch in (
        ("VLLM_ZERO_PADDING", request.no_zero_padding, "-z"),
        ("VLLM_PROMPT_USE_FUSEDSDPA", request.no_fused_sdpa, "-a"),
    ):
        if off:
            script.flag(variable, "false", switch)
        else:
            script.force(variable, "true")
    if any(part in lower for part in NO_FP32_SOFTMAX):
        script.force("VLLM_FP32_SOFTMAX", "false", name)
    if dtype == "fp8":
        script.fp8_weights(lower)
        script.flag("VLLM_DISABLE_MARK_SCALES_AS_CONST", "true", "-d fp8", given=False)


def _reduce(script: Script, reduce: tuple[int, int]) -> None:
    batch, length = reduce
    limits = script.context.limits
    block = limits.block_size
    blocks = round_up((length + limits.output_max) * batch // block, block)
    if script.context.request.tuning == "auto":
        # the engine stops at a range that ends below its beginning
        length = max(length, round_up(limits.input_min, block))
        blocks = max(blocks, round_up(ceil_div(limits.input_min, block), block))
    script.flag("VLLM_SKIP_LAZY_WARMUP", "true", "-r")
    script.flag("VLLM_PROMPT_SEQ_BUCKET_MAX", str(length), "-r")
    script.flag("VLLM_DECODE_BS_BUCKET_MAX", str(batch), "-r")
    script.flag("VLLM_DECODE_BLOCK_BUCKET_MAX", str(blocks), "-r")


def kv_cache_dtype(lower: str) -> str:
    """Return the KV cache type that the script pairs with fp8 weights.

    It depends on the folder's name.
    """
    if "qwen3" in lower:
        if "qwen3-32b" in lower or "qwen3-30b-a3b" in lower:
            return "fp8_inc"
        return "auto"
    if any(part in lower for part in QWEN2_7B) or "deepseek-r1-distill-llama-8b" in lower:
        return "auto"
    return "fp8_inc"


def _argv(script: Script, lower: str, dtype: str, cards: int) -> None:
    request, limits = script.context.request, script.context.limits
    decisions, add = script.decisions, script.option
    add("--host", request.host or "127.0.0.1", "-u")
    add("--port", request.port or 30001, "-p")
    add("--device", "hpu")
    add("--dtype", dtype if dtype in ("bfloat16", "float16") else "bfloat16", "-d")
    if dtype == "fp8":
        add("--quantization", "inc", "-d")
        add("--kv-cache-dtype", kv_cache_dtype(lower), rule=lower)
        if "qwen3-235b-a22b" in lower:
            add("--weights-load-device", "cpu", rule=lower)
    elif dtype in ("awq", "gptq"):
        add("--quantization", f"{dtype}_hpu", "-d")
    add("--model", request.model, "-w")
    add("--trust-remote-code", None)
    add("--tensor-parallel-size", cards, "-n")
    if NO_EXPERT_PARALLEL not in lower:
        add("--enable-expert-parallel", None)
    add("--seed", 0)
    add("--block-size", limits.block_size)
    add("--max-num-seqs", limits.max_num_seqs, "-b")
    add("--max-num-batched-tokens", limits.max_num_batched_tokens, "-t")
    add("--max-model-len", limits.max_model_len, "-l")
    add("--max-seq-len-to-capture", decisions.get("env", "VLLM_MAX_SEQ_LEN_TO_CAPTURE"))
    add("--disable-log-requests", None)
    add("--use-v2-block-manager", None)
    add("--use-padding-aware-scheduling", None)
    add("--num-scheduler-steps", request.scheduler_steps or 1, "-e")
    add("--distributed_executor_backend", "ray" if cards > 8 else "mp")
    add("--gpu-memory-utilization", decisions.get("env", "VLLM_GPU_MEMORY_UTILIZATION"))
