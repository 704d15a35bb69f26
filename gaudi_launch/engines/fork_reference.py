"""What the public start scripts of the vLLM fork give the engine, rule for rule.

Sources: HabanaAI/vllm-fork@277a33cd9 (aice/v1.21.0) and @17a7946f4 (aice/v1.22.0): scripts/utils.sh,
scripts/start_gaudi_vllm_server.sh; @016b6bd20 (deepseek_r1): scripts/quickstart/start_vllm.sh. What the
scripts did is recorded, and a test holds this file to every record.
"""

from __future__ import annotations

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.lengths import ceil_div, round_up
from gaudi_launch.planning.plan import Source
from gaudi_launch.planning.settings import Decisions

ORIGIN_1_21 = "HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh"
ORIGIN_1_22 = "HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh"
ORIGIN_DEEPSEEK = "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/start_vllm.sh"

DTYPES = ("bfloat16", "float16", "fp8", "awq", "gptq")

# 1.21: parts of folder names for which the script turns fp32 softmax off
_NO_FP32_SOFTMAX = (
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
# 1.22 turns it on instead, and 1.21 keeps bfloat16 KV cache with fp8 weights, for these
_QWEN2_7B = ("deepseek-r1-distill-qwen-7b", "qwen2-7b-instruct", "qwen2.5-7b-instruct")
_NO_EXPERT_PARALLEL = "llama-4-scout-17b-16e-instruct"

# what every start exports unless the user did: variable, value
_COMMON_1_21 = (
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
_COMMON_1_22 = (
    ("PT_HPU_LAZY_MODE", "1"),
    ("VLLM_GRAPH_RESERVED_MEM", "0.1"),
    ("VLLM_DELAYED_SAMPLING", "true"),
    ("TOKENIZERS_PARALLELISM", "true"),
    ("VLLM_SERVER_DEV_MODE", "1"),
    ("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", "0"),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),
    ("VLLM_EXPONENTIAL_BUCKETING", "false"),
)
# what start_vllm.sh exports whatever the user did
_FIXED_DEEPSEEK = (
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
_INC_DEEPSEEK = (
    ("VLLM_REQUANT_FP8_INC", "1"),
    ("VLLM_ENABLE_RUNTIME_DEQUANT", "1"),
    ("VLLM_HPU_MARK_SCALES_AS_CONST", "false"),
    ("INC_FORCE_NAIVE_SCALING", "1"),
)


def _script(line: str = "") -> Message:
    return message("plan.script_rule", rule=line) if line else message("plan.script")


def _flag(flag: str) -> Message:
    return message("plan.flag", flag=flag)


def base_name(path: str) -> str:
    """The last part of a path or hub id, as ``basename`` gives it."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def device_name(context: Context) -> str:
    """hl-smi's name of the cards, as the scripts put it into file names ("" when unknown)."""
    return next((card.product for card in context.host.cards if card.product), "") or ""


def check_dtype(dtype: str) -> None:
    """Raises LaunchError for a data type that no script knows."""
    if dtype not in DTYPES:
        raise LaunchError("plan.dtype", ExitCode.USAGE, found=dtype, known=", ".join(DTYPES))


def bucket_variables(
    decisions: Decisions, phase: str, dimension: str, values: dict[str, tuple[int | str, str]], origin: str
) -> None:
    """Propose VLLM_<PHASE>_<DIMENSION>_BUCKET_<NAME> for each name with its value and rule."""
    for name, (value, rule) in values.items():
        variable = f"VLLM_{phase}_{dimension}_BUCKET_{name}"
        decisions.env(variable, str(value), _script(rule), origin=origin)


# --- 1.21 ---------------------------------------------------------------------------------------------------


def v1_21(context: Context, decisions: Decisions) -> None:
    """scripts/start_gaudi_vllm_server.sh of aice/v1.21.0: every variable and option."""
    request, limits = context.request, context.limits
    cards = len(context.placement.modules)
    name = base_name(request.model)
    lower = name.lower()
    dtype = request.dtype or "bfloat16"
    check_dtype(dtype)
    visible_modules(context, decisions, ORIGIN_1_21)
    for variable, value in _COMMON_1_21:
        decisions.env(variable, value, _script(), origin=ORIGIN_1_21)
    decisions.env("VLLM_EP_SIZE", str(cards), _script("-n"), origin=ORIGIN_1_21)
    if cards > 1:
        _force(decisions, "PT_HPU_ENABLE_LAZY_COLLECTIVES", "true", _script("-n > 1"), ORIGIN_1_21)
    network(context, decisions, ORIGIN_1_21)
    _buckets_1_21(context, decisions)
    _tuning_1_21(context, decisions, name, lower, dtype, cards)
    if request.reduce is not None:
        _reduce_1_21(context, decisions, request.reduce)
    _argv_1_21(context, decisions, lower, dtype, cards)
    if limits.input_min == limits.input_max and "input" not in request.open_ranges:
        _force(decisions, "VLLM_ZERO_PADDING", "false", _script("input_min = input_max"), ORIGIN_1_21)


def _buckets_1_21(context: Context, decisions: Decisions) -> None:
    limits = context.limits
    block = limits.block_size
    batches = min(limits.max_num_batched_tokens // limits.input_min, limits.max_num_seqs)
    bucket_variables(
        decisions,
        "PROMPT",
        "BS",
        {"MIN": (1, ""), "STEP": (1, ""), "MAX": (batches, "min(-t / input_min, -b)")},
        ORIGIN_1_21,
    )
    bucket_variables(
        decisions,
        "PROMPT",
        "SEQ",
        {
            "MIN": (round_up(limits.input_min, block), "ceil(input_min, 128)"),
            "STEP": (block, ""),
            "MAX": (round_up(limits.input_max, block) + block, "ceil(input_max, 128) + 128"),
        },
        ORIGIN_1_21,
    )
    step = min(ceil_div(limits.max_num_seqs, 16), 16)
    most = round_up(limits.max_num_seqs, step)
    bucket_variables(
        decisions,
        "DECODE",
        "BS",
        {"MIN": (1, ""), "STEP": (step, "min(ceil(-b / 16), 16)"), "MAX": (most, "ceil(-b, step)")},
        ORIGIN_1_21,
    )
    least_blocks = round_up(ceil_div(limits.input_min, block), block)
    most_blocks = (ceil_div(limits.input_max + limits.output_max, block) + 1) * most
    bucket_variables(
        decisions,
        "DECODE",
        "BLOCK",
        {
            "MIN": (least_blocks, "ceil(ceil(input_min / 128), 128)"),
            "STEP": (block, ""),
            "MAX": (
                round_up(most_blocks, block),
                "ceil((ceil((input_max + output_max) / 128) + 1) * decode_bs_max, 128)",
            ),
        },
        ORIGIN_1_21,
    )


def _tuning_1_21(context: Context, decisions: Decisions, name: str, lower: str, dtype: str, cards: int) -> None:
    request, limits = context.request, context.limits
    if request.cache_dir:
        value = f"{request.cache_dir},false,16384"
        _force(decisions, "PT_HPU_RECIPE_CACHE_CONFIG", value, _flag("-c"), ORIGIN_1_21, flag=True)
    if request.skip_warmup:
        _force(decisions, "VLLM_SKIP_WARMUP", "True", _flag("-s"), ORIGIN_1_21, flag=True)
    if request.profile:
        _force(decisions, "VLLM_PROFILER_ENABLED", "True", _flag("-f"), ORIGIN_1_21, flag=True)
        input_top = "" if "input" in request.open_ranges else limits.input_max
        output_top = "" if "output" in request.open_ranges else limits.output_max
        case = (
            f"serve_{name}_{dtype}_{device_name(context)}_in{limits.input_min}-{input_top}"
            f"_out{limits.output_min}-{output_top}_bs{limits.max_num_seqs}_tp{cards}"
            f"_steps{request.scheduler_steps or 1}_{request.stamp}"
        )
        _force(decisions, "VLLM_PROFILE_FILE", f"{case}_profile.json", _flag("-f"), ORIGIN_1_21, flag=True)
    for variable, off, switch in (
        ("VLLM_ZERO_PADDING", request.no_zero_padding, "-z"),
        ("VLLM_PROMPT_USE_FUSEDSDPA", request.no_fused_sdpa, "-a"),
    ):
        reason = _flag(switch) if off else _script()
        _force(decisions, variable, "false" if off else "true", reason, ORIGIN_1_21, flag=off)
    if any(part in lower for part in _NO_FP32_SOFTMAX):
        _force(decisions, "VLLM_FP32_SOFTMAX", "false", _script(name), ORIGIN_1_21)
    if dtype == "fp8":
        folder = request.scripts_dir or "scripts"
        config = request.quant_config or f"{folder}/quantization/{lower}/maxabs_quant_g2.json"
        decisions.env("QUANT_CONFIG", config, _flag("-d fp8"), origin=ORIGIN_1_21)
        _force(decisions, "PT_HPU_WEIGHT_SHARING", "0", _flag("-d fp8"), ORIGIN_1_21)
        _force(decisions, "VLLM_DISABLE_MARK_SCALES_AS_CONST", "true", _flag("-d fp8"), ORIGIN_1_21)


def _reduce_1_21(context: Context, decisions: Decisions, reduce: tuple[int, int]) -> None:
    batch, length = reduce
    block = context.limits.block_size
    blocks = round_up((length + context.limits.output_max) * batch // block, block)
    for variable, value in (
        ("VLLM_SKIP_LAZY_WARMUP", "true"),
        ("VLLM_PROMPT_SEQ_BUCKET_MAX", str(length)),
        ("VLLM_DECODE_BS_BUCKET_MAX", str(batch)),
        ("VLLM_DECODE_BLOCK_BUCKET_MAX", str(blocks)),
    ):
        _force(decisions, variable, value, _flag("-r"), ORIGIN_1_21, flag=True)


def kv_cache_dtype_1_21(lower: str) -> str:
    """The KV cache type that the script pairs with fp8 weights, by the folder's name."""
    if "qwen3" in lower:
        return "fp8_inc" if "qwen3-32b" in lower or "qwen3-30b-a3b" in lower else "auto"
    if any(part in lower for part in _QWEN2_7B) or "deepseek-r1-distill-llama-8b" in lower:
        return "auto"
    return "fp8_inc"


def _argv_1_21(context: Context, decisions: Decisions, lower: str, dtype: str, cards: int) -> None:
    request, limits = context.request, context.limits

    def add(option: str, value: str | int | None, flag: str = "", rule: str = "") -> None:
        given = flag != "" and _given(context, flag)
        reason = _flag(flag) if given else _script(rule)
        text = None if value is None else str(value)
        decisions.option(option, text, reason, source="flag" if given else "computed", origin=ORIGIN_1_21)

    add("--host", request.host or "127.0.0.1", "-u")
    add("--port", request.port or 30001, "-p")
    add("--device", "hpu")
    add("--dtype", dtype if dtype in ("bfloat16", "float16") else "bfloat16", "-d")
    if dtype == "fp8":
        add("--quantization", "inc", "-d")
        add("--kv-cache-dtype", kv_cache_dtype_1_21(lower), rule=lower)
        if "qwen3-235b-a22b" in lower:
            add("--weights-load-device", "cpu", rule=lower)
    elif dtype in ("awq", "gptq"):
        add("--quantization", f"{dtype}_hpu", "-d")
    add("--model", request.model, "-w")
    add("--trust-remote-code", None)
    add("--tensor-parallel-size", cards, "-n")
    if _NO_EXPERT_PARALLEL not in lower:
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


# --- 1.22 ---------------------------------------------------------------------------------------------------


def v1_22(context: Context, decisions: Decisions) -> None:
    """scripts/start_gaudi_vllm_server.sh of aice/v1.22.0: every variable and option.

    What the user put behind ``--`` stands where the script puts its -e words: before our own extra ones.
    """
    request, limits = context.request, context.limits
    cards = len(context.placement.modules)
    name = base_name(request.model)
    lower = name.lower()
    quantised = bool(request.quant_config or request.environment.get("QUANT_CONFIG"))
    dtype = "fp8" if quantised else request.dtype or "bfloat16"
    check_dtype(dtype)
    for variable, value in _COMMON_1_22:
        decisions.env(variable, value, _script(), origin=ORIGIN_1_22)
    if cards > 1:
        _force(decisions, "PT_HPU_ENABLE_LAZY_COLLECTIVES", "true", _script("-t > 1"), ORIGIN_1_22)
    network(context, decisions, ORIGIN_1_22, host_ip=request.host or "127.0.0.1")
    visible_modules(context, decisions, ORIGIN_1_22)
    if dtype == "fp8":
        folder = request.scripts_dir or "scripts"
        config = request.quant_config or f"{folder}/quantization/{lower}/maxabs_quant_g2.json"
        decisions.env("QUANT_CONFIG", config, _flag("-d fp8"), origin=ORIGIN_1_22)
        _force(decisions, "PT_HPU_WEIGHT_SHARING", "0", _flag("-d fp8"), ORIGIN_1_22)
    _buckets_1_22(context, decisions)
    if request.cache_dir:
        value = f"{request.cache_dir},false,40960"
        _force(decisions, "PT_HPU_RECIPE_CACHE_CONFIG", value, _flag("-c"), ORIGIN_1_22, flag=True)
    if request.skip_warmup:
        _force(decisions, "VLLM_SKIP_WARMUP", "true", _flag("-s"), ORIGIN_1_22, flag=True)
    if request.profile:
        _force(decisions, "VLLM_PROFILER_ENABLED", "true", _flag("-f"), ORIGIN_1_22, flag=True)
        length = request.max_model_len or 16384
        case = (
            f"serve_{name}_{dtype}_{device_name(context)}_len{length}_bs{limits.max_num_seqs}"
            f"_tp{cards}_{request.stamp}"
        )
        _force(decisions, "VLLM_PROFILE_FILE", f"{case}_profile.json", _flag("-f"), ORIGIN_1_22, flag=True)
    _force(decisions, "VLLM_ZERO_PADDING", "true", _script(), ORIGIN_1_22)
    if any(part in lower for part in _QWEN2_7B):
        _force(decisions, "VLLM_FP32_SOFTMAX", "true", _script(name), ORIGIN_1_22)
    _argv_1_22(context, decisions, lower, dtype, cards)


def _buckets_1_22(context: Context, decisions: Decisions) -> None:
    limits = context.limits
    block = limits.block_size
    ratio = (context.request.padding_limit or "0.25", "")
    even = round_up(limits.max_num_seqs, 2)
    blocks = round_up(ceil_div(limits.max_model_len, block) * even, block)
    prefill = limits.max_num_prefill_seqs
    for phase, dimension, least, step, most, rule in (
        ("PROMPT", "BS", 1, 1, prefill, "--max-num-prefill-seqs"),
        ("PROMPT", "SEQ", block, block, limits.max_model_len, "--max-model-len"),
        ("DECODE", "BS", 1, 2, even, "ceil(-b, 2)"),
        ("DECODE", "BLOCK", block, block, blocks, "ceil(ceil(len / 128) * decode_bs_max, 128)"),
    ):
        values: dict[str, tuple[int | str, str]] = {"MIN": (least, ""), "STEP": (step, ""), "MAX": (most, rule)}
        bucket_variables(decisions, phase, dimension, {**values, "LIMIT": ratio}, ORIGIN_1_22)


def _argv_1_22(context: Context, decisions: Decisions, lower: str, dtype: str, cards: int) -> None:
    request, limits = context.request, context.limits

    def add(option: str, value: str | int | None, flag: str = "", rule: str = "") -> None:
        given = flag != "" and _given(context, flag)
        reason = _flag(flag) if given else _script(rule)
        text = None if value is None else str(value)
        decisions.option(option, text, reason, source="flag" if given else "computed", origin=ORIGIN_1_22)

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
    if _NO_EXPERT_PARALLEL not in lower:
        add("--enable-expert-parallel", None)


# --- deepseek_r1 --------------------------------------------------------------------------------------------


def deepseek_r1(context: Context, decisions: Decisions) -> None:
    """scripts/quickstart/start_vllm.sh of deepseek_r1: every variable and option; it overrides the user's."""
    request, limits = context.request, context.limits
    cards = len(context.placement.modules)
    for variable, value in _FIXED_DEEPSEEK:
        _force(decisions, variable, value, _script(), ORIGIN_DEEPSEEK)
    modules = ",".join(str(module) for module in context.placement.modules)
    _force(decisions, "HABANA_VISIBLE_MODULES", modules, message("plan.placement"), ORIGIN_DEEPSEEK)
    _force(decisions, "VLLM_EP_SIZE", str(cards), _script(), ORIGIN_DEEPSEEK)
    utilisation = "0.85" if limits.max_model_len <= 18432 else "0.65"
    _force(decisions, "VLLM_GPU_MEMORY_UTILIZATION", utilisation, _script("0.85; 0.65 over 18432"), ORIGIN_DEEPSEEK)
    _force(decisions, "VLLM_MOE_N_SLICE", "1" if request.inc_fp8 else "8", _flag("-q"), ORIGIN_DEEPSEEK)
    if request.inc_fp8:
        for variable, value in _INC_DEEPSEEK:
            _force(decisions, variable, value, _flag("-q"), ORIGIN_DEEPSEEK, flag=True)
        _quantisation_paths(context, decisions)
    cache = "/data/warmup_cache" if request.cache_dir is None else request.cache_dir
    if cache:
        value, given = f"{cache},false,16384", request.cache_dir is not None
        _force(decisions, "PT_HPU_RECIPE_CACHE_CONFIG", value, _flag("-c"), ORIGIN_DEEPSEEK, flag=given)
    if request.skip_warmup:
        _force(decisions, "VLLM_SKIP_WARMUP", "True", _flag("-s"), ORIGIN_DEEPSEEK, flag=True)
    _buckets_deepseek(context, decisions)
    _argv_deepseek(context, decisions, cards, utilisation)


def _quantisation_paths(context: Context, decisions: Decisions) -> None:
    # start_vllm.sh lies in scripts/quickstart: its measurements two folders up, its configs one folder up
    scripts = context.request.scripts_dir or "scripts/quickstart"
    up = scripts.rstrip("/").rsplit("/", 1)[0] if "/" in scripts.rstrip("/") else "."
    top = up.rsplit("/", 1)[0] if "/" in up else "."
    config = context.request.quant_config or f"{up}/quant_configs/inc_quant_per_channel_with_fp8kv_config.json"
    _force(decisions, "QUANT_CONFIG", config, _flag("-q"), ORIGIN_DEEPSEEK, flag=True)
    _force(decisions, "INC_MEASUREMENT_DUMP_PATH_PREFIX", top or "/", _flag("-q"), ORIGIN_DEEPSEEK, flag=True)


def _buckets_deepseek(context: Context, decisions: Decisions) -> None:
    limits = context.limits
    exported = context.request.environment.get("BUCKET_PADDING_RATIO")
    ratio = context.request.padding_limit or exported or "0.25"
    if exported:
        decisions.env("BUCKET_PADDING_RATIO", exported, _script())
    pcie = device_name(context).startswith("HL-288")
    usual = 2 if pcie else 8
    seqs, length = limits.max_num_seqs, limits.max_model_len
    rule = "min(-b, 2 on PCIe boxes, else 8)"
    for phase, dimension, least, step, most, why in (
        ("PROMPT", "BS", 1, 1, limits.max_num_prefill_seqs, "--max-num-prefill-seqs"),
        ("PROMPT", "SEQ", 128, 128, limits.max_num_batched_tokens, "--max-num-batched-tokens"),
        ("DECODE", "BS", 1, min(seqs, usual), seqs, rule),
        ("DECODE", "BLOCK", 128, 128, max(seqs * length // 128, 128), "max(-b * -l / 128, 128)"),
    ):
        for name, value in (("MIN", least), ("STEP", step), ("MAX", most), ("LIMIT", ratio)):
            variable = f"VLLM_{phase}_{dimension}_BUCKET_{name}"
            _force(decisions, variable, str(value), _script(why if name == "MAX" else ""), ORIGIN_DEEPSEEK)


def _argv_deepseek(context: Context, decisions: Decisions, cards: int, utilisation: str) -> None:
    request, limits = context.request, context.limits

    def add(option: str, value: str | int | None, flag: str = "") -> None:
        given = flag != "" and _given(context, flag)
        reason = _flag(flag) if given else _script()
        text = None if value is None else str(value)
        decisions.option(option, text, reason, source="flag" if given else "computed", origin=ORIGIN_DEEPSEEK)

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


# --- shared -------------------------------------------------------------------------------------------------


def _force(
    decisions: Decisions, name: str, value: str, reason: Message, origin: str, *, flag: bool = False
) -> None:
    """A line of a script that exports whatever the user had."""
    source: Source = "flag" if flag else "computed"
    decisions.env(name, value, reason, source=source, origin=origin, user_wins=False)


def visible_modules(context: Context, decisions: Decisions, origin: str) -> None:
    """Which cards the engine may see: -m in its own words (one card by HLS_MODULE_ID), else the planned ones."""
    request, modules = context.request, context.placement.modules
    words = ",".join(str(module) for module in modules)
    if request.modules is not None and len(modules) == 1:
        _force(decisions, "HLS_MODULE_ID", words, _flag("-m"), origin, flag=True)
    elif request.modules is not None:
        _force(decisions, "HABANA_VISIBLE_MODULES", words, _flag("-m"), origin, flag=True)
    else:
        _force(decisions, "HABANA_VISIBLE_MODULES", words, message("plan.placement"), origin)


def network(context: Context, decisions: Decisions, origin: str, host_ip: str | None = None) -> None:
    """This machine's address and interface for the processes of one job; loopback where none is up."""
    usable = [i for i in context.host.interfaces if i.up and i.addresses and i.name != "lo"]
    chosen = next((i for i in usable if i.default_route), usable[0] if usable else None)
    address = next((a for a in chosen.addresses if "." in a), chosen.addresses[0]) if chosen else "127.0.0.1"
    name = chosen.name if chosen else "lo"
    reason = message("plan.interface", name=name) if chosen else message("plan.no_interface")
    decisions.env("VLLM_HOST_IP", host_ip or address, _script() if host_ip else reason, origin=origin)
    decisions.env("GLOO_SOCKET_IFNAME", name, reason, origin=origin)
    decisions.env("HCCL_SOCKET_IFNAME", name, reason, origin=origin)


_GIVEN = {
    "-n": "cards",
    "-u": "host",
    "-p": "port",
    "-d": "dtype",
    "-t": "max_num_batched_tokens",
    "-l": "max_model_len",
    "-b": "max_num_seqs",
    "-e": "scheduler_steps",
    "--max-prefill-seqs": "max_prefill_seqs",
    "--max-capture-len": "max_capture_len",
    "--memory-utilization": "memory_utilization",
}


def _given(context: Context, flag: str) -> bool:
    return flag == "-w" or getattr(context.request, _GIVEN[flag]) is not None
