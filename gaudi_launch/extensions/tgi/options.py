"""Options, variables and model types of TGI on Gaudi, by image version.

Source: huggingface/text-generation-inference, tags v3.2.3 and v3.3.5: launcher/src/main.rs (Args),
and every ``os.environ`` and ``os.getenv`` of backends/gaudi/server; the extension's variables from
sywangyi/vllm-hpu-extension@bmax_fix, which the 3.3.x images install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.engine_argument import Argument
from gaudi_launch.core.planning.option_table import UNKNOWN, EngineOption, OptionTable

# 3.3.5 to 3.3.7 have the same Gaudi server: its code last changed before 3.3.5 (24c2bff6)
PAGED_VERSIONS = ("3.3.3", "3.3.4", "3.3.5", "3.3.6", "3.3.7")
VERSIONS = ("3.2.3", *PAGED_VERSIONS)
LATEST = "3.3.5"
IMAGE = "ghcr.io/huggingface/text-generation-inference:{version}-gaudi"

FLAG, WHOLE, NUMBER, TEXT = "flag", "whole", "number", "text"
# what an error shows as the values of a kind
_FORMS = {WHOLE: "0 - 9999999999", NUMBER: "1.5"}
TRUTH = ("true", "false")
_KINDS: Mapping[str, tuple[str, ...]] = {
    TEXT: (
        "--model-id", "--revision", "--cuda-graphs", "--hostname", "--shard-uds-path",
        "--master-addr", "--huggingface-hub-cache", "--weights-cache-override", "--otlp-endpoint",
        "--otlp-service-name", "--cors-allow-origin", "--tokenizer-config-path", "--lora-adapters",
    ),
    WHOLE: (
        "--validation-workers", "--num-shard", "--speculate", "--max-concurrent-requests",
        "--max-best-of", "--max-stop-sequences", "--max-top-n-tokens", "--max-input-tokens",
        "--max-input-length", "--max-total-tokens", "--max-batch-prefill-tokens",
        "--max-batch-total-tokens", "--max-waiting-tokens", "--max-batch-size", "--port",
        "--prometheus-port", "--master-port", "--max-client-batch-size", "--payload-limit",
        "--graceful-termination-timeout",
    ),
    FLAG: (
        "--trust-remote-code", "--disable-custom-kernels", "--json-output",
        "--disable-grammar-support", "--env", "--enable-prefill-logprobs",
    ),
    NUMBER: (
        "--waiting-served-ratio", "--cuda-memory-fraction", "--rope-factor", "--watermark-gamma",
        "--watermark-delta",
    ),
}  # fmt: skip
OPTIONS: Mapping[str, str | tuple[str, ...]] = {
    **{name: kind for kind, names in _KINDS.items() for name in names},
    "--sharded": TRUTH,
    "--quantize": ("gptq", "awq", "fp8", "compressed-tensors"),
    "--dtype": ("bfloat16", "float16"),
    # the other one, fp8_e5m2, is an error on Gaudi (layers/attention/kv_cache.py)
    "--kv-cache-dtype": ("fp8_e4m3fn",),
    "--rope-scaling": ("linear", "dynamic"),
    "--usage-stats": ("on", "off", "no-stack"),
}
# launcher/src/main.rs: `-p` names two options there, so it is not passed on
_SHORT = {"--env": "-e", "--graceful-termination-timeout": "-g"}
TABLE = OptionTable(
    "tgi",
    tuple(
        EngineOption(
            name,
            count="0" if kind == FLAG else "1",
            aliases=(_SHORT[name],) if name in _SHORT else (),
        )
        for name, kind in OPTIONS.items()
    ),
)
# options that ours decide, or that cannot work, with the reason to show
_OURS = {
    "--model-id": "-w",
    "--sharded": "-n",
    "--num-shard": "-n",
    "--port": "-p",
    "-p": "-p",
    "--hostname": "-u",
    "--max-input-length": "-i",
}
_LATER = {"--prometheus-port": "3.3.0"}

_EVERY = (
    "LIMIT_HPU_GRAPH", "SKIP_TOKENIZER_IN_TGI", "TEXT_GENERATION_SERVER_IGNORE_EOS_TOKEN",
    "SDP_ON_BF16", "DBG_TRACE_FILENAME", "DUMP_STACK", "HF_ENDPOINT", "HF_HUB_OFFLINE",
    "HF_HUB_ENABLE_HF_TRANSFER", "PT_HPU_LAZY_MODE", "PT_HPU_WEIGHT_SHARING",
    "PT_HPU_ENABLE_LAZY_COLLECTIVES", "PT_HPU_RECIPE_CACHE_CONFIG",
)  # fmt: skip
_PADDED = (
    "BATCH_SIZE_EXPONENT_BASE", "PAD_SEQUENCE_TO_MULTIPLE_OF", "BASE_IMAGE_TOKENS", "QUANT_CONFIG",
    "ENABLE_HPU_GRAPH", "USE_FLASH_ATTENTION", "FLASH_ATTENTION_RECOMPUTE", "PROF_WAITSTEP",
    "PROF_WARMUPSTEP", "PROF_STEP", "PROF_PATH", "PROF_RANKS", "PROF_RECORD_SHAPES",
    "MAX_TOTAL_TOKENS", "ENABLE_EXPERIMENTAL_FLAGS", "USE_DEFAULT_QUANT_PARAM",
    "UPDATE_GRAPH_OUTPUT_MME", "ENABLE_CALC_DYNAMIC_RANGE", "UPDATE_MME_OUTPUT_PRECISION_FILTER",
    "EXPERIMENTAL_WEIGHT_SHARING",
)  # fmt: skip
_PAGED = (
    "VLLM_SKIP_WARMUP", "VLLM_CONTIGUOUS_PA", "VLLM_EXPONENTIAL_BUCKETING",
    "VLLM_GRAPH_PROMPT_RATIO", "HPU_MEMORY_FRACTION", "TGI_GRAPH_RESERVED_MEM",
    "USE_EXPERT_PARALLEL", "REQUEST_LOGPROBS", "VLLM_PROMPT_BS_BUCKET_LIMIT",
    "VLLM_PROMPT_SEQ_BUCKET_LIMIT", "VLLM_DECODE_BS_BUCKET_LIMIT", "VLLM_DECODE_BLOCK_BUCKET_LIMIT",
    "VLLM_PROMPT_BS_BUCKET_MIN", "VLLM_PROMPT_BS_BUCKET_STEP", "VLLM_PROMPT_BS_BUCKET_MAX",
    "VLLM_PROMPT_SEQ_BUCKET_MIN", "VLLM_PROMPT_SEQ_BUCKET_STEP", "VLLM_PROMPT_SEQ_BUCKET_MAX",
    "VLLM_DECODE_BS_BUCKET_MIN", "VLLM_DECODE_BS_BUCKET_STEP", "VLLM_DECODE_BS_BUCKET_MAX",
    "VLLM_DECODE_BLOCK_BUCKET_MIN", "VLLM_DECODE_BLOCK_BUCKET_MAX",
)  # fmt: skip
# read as text and used as a number in 3.3.x (flash_causal_lm.py, warmup): a TypeError in the middle
# of the warm-up
BREAKS_PAGED = "VLLM_DECODE_BLOCK_BUCKET_STEP"
# documented for some image, but read by none of these (3.2.1 read the first two, the old tgi-gaudi
# router the others)
_NEVER = ("BATCH_BUCKET_SIZE", "PREFILL_BATCH_BUCKET_SIZE", "WARMUP_ENABLED", "QUEUE_THRESHOLD_MS")
# least value of those that are read as integers and used in our arithmetic
_WHOLE_VARIABLES = {
    "BATCH_SIZE_EXPONENT_BASE": 2,
    "PAD_SEQUENCE_TO_MULTIPLE_OF": 1,
    "BASE_IMAGE_TOKENS": 0,
    "VLLM_PROMPT_BS_BUCKET_LIMIT": 1,
    "VLLM_PROMPT_SEQ_BUCKET_LIMIT": 1,
    "VLLM_DECODE_BS_BUCKET_LIMIT": 1,
    "VLLM_DECODE_BLOCK_BUCKET_LIMIT": 1,
}
_MOST = 100_000

# models/__init__.py get_model of v3.3.5; nothing falls back to transformers
PAGED_TYPES = frozenset({
    "deepseek_v2", "deepseek_v3", "idefics2", "idefics3", "llava_next", "llama", "llama4", "phi3",
    "granite", "gemma", "paligemma", "gemma2", "gemma3", "gemma3_text", "cohere", "dbrx", "mistral",
    "mixtral", "gpt_bigcode", "phi", "phimoe", "baichuan", "falcon", "starcoder2", "qwen2",
    "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "gpt2", "gpt_neox", "gptj", "mllama",
})  # fmt: skip
# v3.3.3's get_model does not have these; v3.3.4's has
_SINCE_334 = frozenset({"gemma3", "gemma3_text"})
VISION_TYPES = frozenset({
    "idefics2", "idefics3", "llava_next", "llama4", "paligemma", "gemma3", "qwen2_vl", "qwen2_5_vl",
    "mllama",
})  # fmt: skip
# key-value heads are divided between the cards and never repeated (flash_llama_modeling.py, which
# also serves the next three types, flash_mistral, flash_qwen2 and flash_qwen3_modeling.py of
# v3.3.5); qwen3_moe repeats them
DIVIDED_KV_TYPES = frozenset({"llama", "phi3", "granite", "baichuan", "mistral", "qwen2", "qwen3"})
# v3.2.3 takes every causal model of transformers, and of the vision models these
PADDED_VISION_TYPES = frozenset({"llava_next", "mllama"})
_GET_MODEL = "backends/gaudi/server/text_generation_server/models/__init__.py get_model"
# the source of either list, by `paged`
TYPES_SOURCE = {
    True: f"huggingface/text-generation-inference@8d029d2f (v3.3.5): {_GET_MODEL}",
    False: f"huggingface/text-generation-inference@a1f3ebe1 (v3.2.3): {_GET_MODEL}",
}


def paged(version: str) -> bool:
    """Return True if this version has the paged server (3.3.3 and later).

    Others have the padded one.
    """
    return version in PAGED_VERSIONS


def types_of(version: str) -> frozenset[str]:
    """Return the model types of an image's list."""
    if not paged(version):
        return PADDED_VISION_TYPES
    if version == "3.3.3":
        return PAGED_TYPES - _SINCE_334
    return PAGED_TYPES


def read_by(version: str) -> frozenset[str]:
    """Return the variables that a user may set for this version."""
    return frozenset((*_EVERY, *(_PAGED if paged(version) else _PADDED)))


def unread_by(version: str) -> tuple[str, ...]:
    """Return variables of other versions, which this one silently ignores."""
    mine = read_by(version)
    return tuple(n for n in (*_NEVER, *_PADDED, *_PAGED, BREAKS_PAGED) if n not in mine)


def check_variable(name: str, value: str) -> None:
    """Raise LaunchError (USAGE) for a number that the server would stop on."""
    least = _WHOLE_VARIABLES.get(name)
    if least is None:
        return
    if not (
        value.isascii() and value.isdigit() and len(value) < 10 and least <= int(value) <= _MOST
    ):
        raise LaunchError(
            "plan.number", ExitCode.USAGE, flag=name, found=value, least=least, most=_MOST
        )


def read_words(words: Sequence[str], version: str, force: bool = False) -> dict[str, str | None]:
    """Return the launcher options after ``--`` by their long names.

    The last of a repeated one counts, because the launcher would stop on the second.

    Raises LaunchError (USAGE): an option that our own ones decide, that this version does not have
    (unless forced), a missing or wrong value.
    """
    found: dict[str, str | None] = {}
    for argument in engine_args(table=TABLE, user=words).user:
        name = _exact_name(argument)
        _check_name(name, version, force)
        kind = OPTIONS.get(name)
        bare = not argument.values and not argument.attached
        if bare and (kind is None or kind == FLAG):
            found[name] = None
            continue
        if kind == FLAG or not _is_taken(argument.value, kind):
            values = {"found": argument.value, "wanted": _wanted(kind)}
            raise LaunchError("tgi.value", ExitCode.USAGE, option=name, **values)
        found[name] = argument.value
    return found


def _exact_name(argument: Argument) -> str:
    """Return the long name of an option as the launcher reads it.

    clap knows no abbreviation and no ``_``.
    """
    word = argument.words[0]
    if argument.option is not UNKNOWN and not word.startswith("--"):
        return argument.name
    if argument.positional:
        return word
    return word.partition("=")[0]


def _check_name(name: str, version: str, force: bool) -> None:
    if name in _OURS:
        raise LaunchError("plan.own_option", ExitCode.USAGE, option=name, ours=_OURS[name])
    if name == "--api-key":
        raise LaunchError("tgi.api_key", ExitCode.USAGE)
    known = name in OPTIONS and not (name in _LATER and version == "3.2.3")
    if not known and not (force and name.startswith("--")):
        raise LaunchError("tgi.no_option", ExitCode.USAGE, option=name, version=version)


def _is_taken(value: str, kind: str | tuple[str, ...] | None) -> bool:
    """Return True if the launcher takes a value of this kind; None is any text."""
    if isinstance(kind, tuple):
        return value in kind
    if kind == WHOLE:
        return value.isascii() and value.isdigit() and len(value) < 11
    if kind == NUMBER:
        parts = value.split(".")
        digits = all(part.isascii() and part.isdigit() for part in parts)
        return digits and len(parts) < 3 and len(value) < 20
    # the image's entry point passes its arguments on unquoted: one with a space would arrive as two
    unsafe = any(letter.isspace() or letter in "*?[" for letter in value)
    return bool(value) and not value.startswith("-") and not unsafe


def _wanted(kind: str | tuple[str, ...] | None) -> str:
    """Return what the launcher takes, for an error."""
    if isinstance(kind, tuple):
        return " | ".join(kind)
    if kind == FLAG:
        return text("tgi.no_value")
    if kind in _FORMS:
        return _FORMS[kind]
    return text("tgi.plain_value")
