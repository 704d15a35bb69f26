"""Runs inside the engine's interpreter: query its bucket code for its list.

Only the standard library here.

Started with ``-c`` and this file's text, so that no module of the launcher can shadow one of the
engine's. Reads {"args": ...} on standard input; the engine's variables are the process's. Writes
one JSON object: {"prompt", "decode", "algorithm"}, or {"missing": text} when the package is
missing, or {"error": text} when it fails.
"""

import importlib
import json
import logging
import os
import pathlib
import sys
import types
from typing import Any

# Detected values that would otherwise load torch or run a program, and that no bucket depends on.
DETECTED = {
    "VLLM_HW": "gaudi2",
    "VLLM_BUILD": "0.0.0.0",
    "VLLM_BRIDGE_MODE": "lazy",
    "VLLM_ENGINE_VERSION": "v0",
    "VLLM_MODEL_TYPE": "llama",
    "VLLM_PROMPT_USE_FUSEDSDPA": "false",
    "VLLM_FUSED_BLOCK_SOFTMAX_ADJUSTMENT": "false",
}


def without_vllm() -> None:
    """Replace vllm by a stand-in with only the logger that the extension imports.

    Importing vllm itself takes seconds.
    """
    vllm: Any = types.ModuleType("vllm")
    vllm.__path__ = []
    vllm.logger = types.ModuleType("vllm.logger")
    vllm.logger.init_logger = logging.getLogger
    sys.modules["vllm"] = vllm
    sys.modules["vllm.logger"] = vllm.logger


def plugin(args: dict[str, Any]) -> dict[str, Any]:
    """Return vllm-gaudi: a manager that knows speculation, mamba and files."""
    common = importlib.import_module("vllm_gaudi.extension.bucketing.common")
    if args.get("bucket_file") is not None:
        path = pathlib.Path("buckets.txt")
        path.write_text(args["bucket_file"], encoding="utf-8")
        os.environ["VLLM_BUCKETING_FROM_FILE"] = str(path)
    manager = common.HPUBucketingManager()
    manager.initialize(
        args["max_num_seqs"],
        args["max_num_prefill_seqs"],
        args["block_size"],
        args["max_num_batched_tokens"],
        args["max_model_len"],
        **{
            name: args[name]
            for name in (
                "num_speculative_tokens",
                "mamba_chunk_size",
                "mamba_chunk_size_is_explicit",
            )
            if args.get(name)
        },
    )
    manager.skip_decode_block_clamp = bool(args.get("skip_decode_block_clamp"))
    if args.get("bucket_file") is not None:
        algorithm = "file"
    else:
        name = type(manager.get_bucketing_strategy()).__name__
        algorithm = {"Exponential": "exponential", "Linear": "linear"}.get(
            name.split("Bucketing")[0], "pad"
        )
    return managed(manager, args, algorithm)


def managed(manager: Any, args: dict[str, Any], algorithm: str) -> dict[str, Any]:
    """Return the lists of a manager (1.22 and vllm-gaudi).

    Prompt first, because the cache size is known only after it.
    """
    manager.generate_prompt_buckets()
    prompt = [[int(number) for number in bucket] for bucket in manager.prompt_buckets]
    manager.num_hpu_blocks = args["num_hpu_blocks"]
    manager.generate_decode_buckets()
    decode = [[int(number) for number in bucket] for bucket in manager.decode_buckets]
    return {"prompt": prompt, "decode": decode, "algorithm": algorithm}


def fork(args: dict[str, Any]) -> dict[str, Any]:
    """Return vllm_hpu_extension's lists.

    Its form is a manager (1.22), a context by algorithm (1.21) or one context (deepseek_r1).
    """
    package = importlib.import_module("vllm_hpu_extension.bucketing")
    if hasattr(package, "HPUBucketingContext"):
        limit = hasattr(package, "warmup_range_with_limit")
        made = package.HPUBucketingContext(*sizes(args))
        made.generate_prompt_buckets()
        made.generate_decode_buckets(
            args["num_hpu_blocks"], args.get("num_speculative_tokens") or 0
        )
        return paired(made, "linear-limit" if limit else "linear")
    common = importlib.import_module("vllm_hpu_extension.bucketing.common")
    if hasattr(common, "HPUBucketingManager"):
        environment = importlib.import_module("vllm_hpu_extension.environment")
        environment._VLLM_VALUES["prefix_caching"] = bool(args.get("prefix_caching"))
        manager = common.HPUBucketingManager()
        manager.initialize(*sizes(args), args["max_model_len"])
        strategy = type(manager.get_bucketing_strategy())
        if "Exponential" in strategy.__name__:
            algorithm = "exponential"
        else:
            limit = hasattr(sys.modules[strategy.__module__], "warmup_range_with_limit")
            algorithm = "linear-limit" if limit else "linear"
        return managed(manager, args, algorithm)
    context = common.get_bucketing_context()
    made = context(*sizes(args), bool(args.get("use_merged_prefill")), args["max_model_len"])
    made.generate_decode_buckets(args["num_hpu_blocks"])
    return paired(made, "exponential" if "Exponential" in context.__name__ else "linear")


def sizes(args: dict[str, Any]) -> list[int]:
    """Return the four numbers that every generator takes first."""
    return [
        args[n]
        for n in ("max_num_seqs", "max_num_prefill_seqs", "block_size", "max_num_batched_tokens")
    ]


def paired(context: Any, algorithm: str) -> dict[str, Any]:
    """Return the lists of a context, which keeps pairs."""
    prompt = [[int(batch), int(query), 0] for batch, query in context.prompt_buckets]
    decode = [[int(batch), 1, int(blocks)] for batch, blocks in context.decode_buckets]
    return {"prompt": prompt, "decode": decode, "algorithm": algorithm}


def main() -> None:
    """Write one answer on the real standard output.

    The engine's output goes to standard error.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    asked = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    for name, value in DETECTED.items():
        os.environ.setdefault(name, value)
    without_vllm()
    ask = plugin if asked["package"] == "vllm_gaudi" else fork
    try:
        importlib.import_module(asked["package"])
        answer = ask(asked["args"])
    except ImportError as error:
        answer = {"missing": str(error)}
    except Exception as error:
        answer = {"error": type(error).__name__ + ": " + str(error)}
    json.dump(answer, answers)


main()
