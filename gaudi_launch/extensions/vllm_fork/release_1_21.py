"""The release 1.21 of the fork, with its start script rule for rule.

HabanaAI/vllm-fork@277a33cd9 (aice/v1.21.0): scripts/start_gaudi_vllm_server.sh, scripts/utils.sh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.bucket_list import Buckets, captured
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.buckets.families import PLAIN_GRID
from gaudi_launch.core.engines.base import base_name
from gaudi_launch.core.planning.calibration_rules import Rules
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, OverHosts
from gaudi_launch.core.planning.lengths import LengthRules, ceil_div, round_up
from gaudi_launch.core.planning.plan import Setting
from gaudi_launch.core.planning.precision import asked_fp8
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.vllm_fork.calibration import BF16_TYPES, GATE, measured, of_extension
from gaudi_launch.extensions.vllm_fork.engine import MEMORY, VllmFork
from gaudi_launch.extensions.vllm_fork.reference import (
    NO_EXPERT_PARALLEL,
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
# parts of folder names for which the script of 1.21 turns fp32 softmax off
NO_FP32_SOFTMAX = (
    "deepseek-r1-distill-qwen-14b",
    "deepseek-r1-distill-qwen-32b",
    "deepseek-r1-distill-llama-8b",
    "deepseek-r1-distill-llama-70b",
    "qwen3-8b",
    "qwen3-14b",
    "qwen3-32b",
    "qwq-32b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
)
_BF16_NAMES = (
    *("lm_head", GATE, "k_cache", "v_cache", "matmul_av", "matmul_qk", "batch2block_matmul"),
    *("block2batch_matmul", "fused_scaled_dot_product_attention", "softmax"),
)
# the modules that 1.21 leaves in bfloat16, by the first part of a model's name that fits; Qwen3-32B
# and Qwen3-30B-A3B have fp8 attention
_LEFT_OUT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("qwen3-32b", ("lm_head", GATE)),
    ("qwen3-30b-a3b", ("lm_head", GATE)),
    ("qwen3", _BF16_NAMES),
    ("deepseek-r1-distill-llama-8b", _BF16_NAMES),
    ("qwq-32b", ("lm_head", GATE)),
)
# the engine's own default (HabanaAI/vllm-fork@277a33cd9:vllm/config.py max_seq_len_to_capture)
_CAPTURE_LENGTH = 8192
_SKIP_COMPILE = "VLLM_SKIP_LAZY_WARMUP"


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
    script.flag(_SKIP_COMPILE, "true", "-r")
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


def _calibration_rules(lower: str) -> Rules:
    """Return the rules of its calibration for a model, by its name in lower case."""
    left = measured(lower)
    env = {"PT_HPU_LAZY_MODE": "1", "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    if any(part in lower for part in NO_FP32_SOFTMAX):
        env["VLLM_FP32_SOFTMAX"] = "false"
    if any(part in lower for part in QWEN2_7B):
        fused = ("fused_scaled_dot_product_attention",)
        return Rules(left, BF16_TYPES, fused, method="unit_scale", env=env)
    names: tuple[str, ...] = ("self_attn", "lm_head")
    if not lower.startswith("mixtral"):
        names = next((found for part, found in _LEFT_OUT if part in lower), ())
    return Rules(left, ("Softmax",), names, env=env)


class Fork121(VllmFork):
    """vllm-fork@1.21."""

    version = "1.21"
    label = "vllm-fork@1.21"
    bucket_family = PLAIN_GRID
    lengths = LengthRules(20480, 32, 2048, inputs=(4, 16384), outputs=(4, 2048), prefill_seqs=None)
    without: ClassVar = {
        "inc_fp8": "-q",
        "padding_limit": "--padding-limit",
        "max_prefill_seqs": "--max-prefill-seqs",
        "memory_utilization": "--memory-utilization",
        "max_capture_len": "--max-capture-len",
        "quant_config": "--quant-config",
    }
    auto_has = frozenset(
        {"max_prefill_seqs", "memory_utilization", "max_capture_len", "quant_config"}
    )
    can = ("chat", "vision", "fp8", "awq", "experts")
    calibration = of_extension("1.21", _calibration_rules)
    memory = replace(MEMORY, blocks_step=True)
    over_hosts = OverHosts(old_ray=True)
    # it loads fp8 codes as they are, and its manual converts with convert_for_g2.py:
    # HabanaAI/vllm-fork@277a33cd9:scripts/docs/vllm推理手册.md:491-507
    needs_gaudi2_range = True
    unread = ("VLLM_GPU_MEMORY_UTILIZATION", "VLLM_MAX_SEQ_LEN_TO_CAPTURE", "VLLM_EP_SIZE")

    def script(self, context: Context, decisions: Decisions) -> None:
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

    def script_lengths(self, request: Request) -> tuple[int, int]:
        usual = self.lengths.length
        return request.max_model_len or usual, request.max_num_batched_tokens or usual

    def assumed(self, context: Context) -> Context:
        """Return the context in which a quantisation file means fp8: it needs the option."""
        if not asked_fp8(context.request):
            return context
        return replace(context, request=replace(context.request, dtype="fp8"))

    def check(self, context: Context) -> None:
        super().check(context)
        if boolean(context.request.environment.get("VLLM_EXPONENTIAL_BUCKETING", "")):
            raise LaunchError("plan.exponential", ExitCode.USAGE)

    def adjust(self, context: Context, decisions: Decisions) -> None:
        super().adjust(context, decisions)
        # with it, buckets over --max-seq-len-to-capture are never compiled; raising that length
        # instead would only help while graph memory lasts, and the memory of a graph there is
        # unknown (HabanaAI/vllm-fork@277a33cd9:vllm/worker/hpu_model_runner.py:2661-2680,
        # 2838-2848)
        decisions.drop_unless_exported(_SKIP_COMPILE)

    def limit_padding(self, asked: str | None, decisions: Decisions) -> None:
        """Send nothing: this release has no padding limit."""

    def warmed(self, buckets: Buckets, settings: Sequence[Setting], context: Context) -> Buckets:
        """Return the part of the list that is compiled.

        Without its first pass (the script's -r, or exported) it is only what is captured.
        """
        buckets = super().warmed(buckets, settings, context)
        args = context.request.args
        values = {setting.name: setting.value or "" for setting in settings}
        values = {**context.request.environment, **values}
        if values.get(_SKIP_COMPILE, "").lower() != "true":
            return buckets
        if args.has("--enforce-eager"):
            return captured(buckets, 0)
        name = "--max-seq-len-to-capture"
        longest = args.last(name) or values.get(name, "")
        if not longest.isdigit():
            return captured(buckets, _CAPTURE_LENGTH)
        return captured(buckets, int(longest))
