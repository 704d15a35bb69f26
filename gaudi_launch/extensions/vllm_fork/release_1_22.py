"""The release 1.22 of the fork, with its start script rule for rule.

HabanaAI/vllm-fork@17a7946f4 (aice/v1.22.0): scripts/start_gaudi_vllm_server.sh, scripts/utils.sh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.families import EVERY_CONTEXT
from gaudi_launch.core.engines.base import base_name
from gaudi_launch.core.engines.generation import is_gaudi2
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.calibration_rules import Rules
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.lengths import BLOCK, LengthRules, ceil_div, round_up
from gaudi_launch.core.planning.memory import check_host_memory
from gaudi_launch.core.planning.precision import asked_fp8, fp8_cache
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.vllm_fork.auto import knows_limit
from gaudi_launch.extensions.vllm_fork.calibration import BF16_TYPES, GATE, measured, of_extension
from gaudi_launch.extensions.vllm_fork.engine import LENGTHS, SWITCHES, VllmFork
from gaudi_launch.extensions.vllm_fork.reference import (
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
_BF16_NAMES = ("lm_head", GATE, "fused_scaled_dot_product_attention")
_RESCALE = "VLLM_HPU_CONVERT_TO_FP8UZ"
# config.json's quant_method of checkpoints with 8-bit floats
_FP8 = ("fp8", "compressed-tensors")


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


def _calibration_rules(lower: str) -> Rules:
    """Return the rules of its calibration for a model, by its name in lower case."""
    left = measured(lower)
    types: tuple[str, ...] = ("Softmax",)
    names: tuple[str, ...] = ("lm_head", GATE)
    method, scales, env = "maxabs_hw", "scalar", {}
    qwen2, mixtral = any(part in lower for part in QWEN2_7B), lower.startswith("mixtral")
    qwen3 = "qwen3" in lower and "qwen3-32b" not in lower
    if qwen2 or mixtral or qwen3 or "deepseek-r1-distill-llama-8b" in lower:
        types, names = BF16_TYPES, _BF16_NAMES
    if qwen2:
        method, env = "unit_scale", {"VLLM_FP32_SOFTMAX": "true"}
    elif mixtral or (qwen3 and ("qwen3-30b-a3b" in lower or "qwen3-235b-a22b" in lower)):
        scales = "const"
    if "glm-4.5" in lower:
        types, names, scales = BF16_TYPES, ("lm_head", GATE), "const"
    if scales == "const":
        env = {**env, "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    return Rules(left, types, names, method, scales, env)


class Fork122(VllmFork):
    """vllm-fork@1.22."""

    version = "1.22"
    label = "vllm-fork@1.22"
    bucket_family = EVERY_CONTEXT
    # HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh PREFERED_BATCHED_TOKENS
    lengths = LengthRules(16384, 128, 2048)
    without: ClassVar = {**LENGTHS, **SWITCHES, "inc_fp8": "-q"}
    auto_has = frozenset({*LENGTHS, *SWITCHES})
    can = ("chat", "embed", "vision", "fp8", "awq", "experts", "prefix")
    calibration = of_extension("1.22", _calibration_rules)
    entry_after = "--distributed_executor_backend"
    # it reads the file itself; stated so that the memory is computed with the result
    cache_type_source = "engine"

    def script(self, context: Context, decisions: Decisions) -> None:
        """Propose every variable and option of the script of aice/v1.22.0.

        scripts/start_gaudi_vllm_server.sh. The user's arguments after ``--`` go where the script
        puts those of its -e: before our additional ones.
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

    def script_lengths(self, request: Request) -> tuple[int, int]:
        length = round_up(request.max_model_len or self.lengths.length, BLOCK)
        return length, max(length, self.lengths.step)

    def silent_kv_dtype(self, model: Model, variables: Mapping[str, str]) -> str:
        """Return the KV cache type that is used without an option.

        INC weights have an fp8 cache unless the file's blocklist names it (its vllm/config.py).
        """
        if variables.get("QUANT_CONFIG"):
            return fp8_cache(model, self.calibration)
        return "auto"

    def limit_padding(self, asked: str | None, decisions: Decisions) -> None:
        limits = [each for each in decisions.variables() if each.name.endswith("_BUCKET_LIMIT")]
        exported = {each.name: each.value or "" for each in limits if each.source == "environment"}
        integers = all(value.lstrip("-").isdigit() for value in exported.values())
        if self.facts.get("bucket_limit") == "false" and not integers:
            names = ", ".join(sorted(exported))
            raise LaunchError("plan.limit_exported", ExitCode.USAGE, names=names)
        super().limit_padding(asked, decisions)

    def quantise(self, context: Context, decisions: Decisions) -> None:
        if not self.needs_quant_file(context.request, context.model):
            self._rescale(context, decisions)
        super().quantise(context, decisions)

    def _rescale(self, context: Context, decisions: Decisions) -> None:
        """Load quantised weights through host memory on Gaudi2.

        fp8 ones are brought into Gaudi2's range there. HabanaAI/vllm-fork@17a7946f4:
        vllm/config.py:4504-4519; scripts/README.md: not for weights that were converted.
        """
        model = context.model
        if model.quantization is None or not is_gaudi2(context):
            return
        origin = "HabanaAI/vllm-fork@17a7946f4:vllm/config.py"
        if model.converted:
            decisions.env(_RESCALE, "false", message("quant.converted"), origin=origin)
        elif model.quantization in _FP8:
            decisions.env(
                _RESCALE, "true", message("quant.rescaled"), source="engine", origin=origin
            )
        exported = context.request.environment.get(_RESCALE, "").lower()
        if not model.converted and exported in ("", "1", "true"):
            check_host_memory(context, decisions)

    def more_options(self, context: Context, decisions: Decisions) -> None:
        """Add options of other scripts; ranges by the arithmetic of the script of 1.21."""
        super().more_options(context, decisions)
        request, limits = context.request, context.limits
        if not (request.input_range or request.output_range):
            return
        longest = min(round_up(limits.input_max, BLOCK), limits.max_model_len)
        least = min(round_up(limits.input_min, BLOCK), longest)
        batches = round_up(limits.max_num_seqs, 2)
        total = min(limits.input_max + limits.output_max, limits.max_model_len)
        blocks = round_up((ceil_div(total, BLOCK) + 1) * batches, BLOCK)
        for name, value in (
            ("VLLM_PROMPT_SEQ_BUCKET_MIN", least),
            ("VLLM_PROMPT_SEQ_BUCKET_MAX", longest),
            ("VLLM_DECODE_BLOCK_BUCKET_MAX", blocks),
        ):
            decisions.env(name, str(value), message("plan.flag", flag="-i -o"), source="computed")

    def warn_of_script(self, request: Request, decisions: Decisions) -> None:
        if knows_limit(self.facts):
            return
        # HabanaAI/vllm-hpu-extension@f5f9ecb:vllm_hpu_extension/bucketing/common.py: int()
        limit = request.padding_limit or "0.25"
        if not limit.isdigit():
            decisions.warn("plan.limit_reference", found=limit, engine=self.label)
