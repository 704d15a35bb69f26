"""Runs inside the engine's interpreter: query its bucket code for its list.

Only the standard library here.

Started with ``-c`` and this file's text, so that no module of the launcher can shadow one of the
engine's. Reads {"package": ..., "cases": [{"env", "args", "shapes"}]} on standard input. Writes one
JSON list with an answer for each case, each computed in its own process, because the engine keeps
what it read: {"prompt", "decode", "algorithm", "found"}, or {"missing": text} when the package is
missing, or {"error": text} when it fails. ``found`` are the buckets of ``shapes``, which are
[phase, batch, query, context].
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
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


# imported by the plugin's utilities up to 0.21, and never used for a bucket
UNUSED = ("torch", "habana_frameworks", "neural_compressor")


class StandIn(types.ModuleType):
    """A package of which every name is another one."""

    __path__: Any = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.setdefault(f"{self.__name__}.{name}", StandIn(f"{self.__name__}.{name}"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __mro_entries__(self, bases: Any) -> Any:
        return ()


class StandIns:
    """Finds a stand-in for slow imports that the bucket code does not need."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in (*UNUSED, "vllm"):
            return None
        return importlib.util.spec_from_loader(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        return StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        return


def without_vllm() -> None:
    """Replace vllm, torch and Gaudi's packages by stand-ins, with the logger of vllm."""
    sys.meta_path.insert(0, StandIns())
    logger: Any = StandIn("vllm.logger")
    logger.init_logger = logging.getLogger
    sys.modules["vllm.logger"] = logger


def plugin(args: dict[str, Any]) -> dict[str, Any]:
    """Return vllm-gaudi: a manager that knows speculation, mamba and files."""
    common = importlib.import_module("vllm_gaudi.extension.bucketing.common")
    if args.get("bucket_file") is not None:
        path = pathlib.Path("buckets.txt")
        path.write_text(args["bucket_file"], encoding="utf-8")
        os.environ["VLLM_BUCKETING_FROM_FILE"] = str(path)
    manager = common.HPUBucketingManager()
    # the runner of a release gives what its manager takes
    taken = inspect.signature(manager.initialize).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    given = ("num_speculative_tokens", "mamba_chunk_size", "mamba_chunk_size_is_explicit")
    manager.initialize(
        args["max_num_seqs"],
        args["max_num_prefill_seqs"],
        args["block_size"],
        args["max_num_batched_tokens"],
        args["max_model_len"],
        **{n: args[n] for n in given if args.get(n) and (takes_all or n in taken)},
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
    manager.block_size = args.get("decode_block_size") or args["block_size"]
    manager.generate_decode_buckets()
    decode = [[int(number) for number in bucket] for bucket in manager.decode_buckets]
    found = [lookup(manager, *shape) for shape in args.get("shapes", ())]
    return {"prompt": prompt, "decode": decode, "algorithm": algorithm, "found": found}


def lookup(manager: Any, phase: str, batch: int, query: int, context: int) -> Any:
    """Return the bucket that this manager takes, or adds, for a shape."""
    if phase == "prompt":
        return [int(each) for each in manager.find_prompt_bucket(batch, query, context)]
    return [int(each) for each in manager.find_decode_bucket(batch, context)]


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


def answer_to(package: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one case, with the engine's variables in this process."""
    os.environ.update(case["env"])
    ask = plugin if package == "vllm_gaudi" else fork
    try:
        importlib.import_module(package)
        return ask({**case["args"], "shapes": case.get("shapes", [])})
    except ImportError as error:
        return {"missing": str(error)}
    except Exception as error:
        return {"error": type(error).__name__ + ": " + str(error)}


def separately(package: str, case: dict[str, Any]) -> Any:
    """Return `answer_to` of a copy of this process; None where that died."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        child = os.fork()
        if not child:
            json.dump(answer_to(package, case), file)
            file.flush()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return json.loads(file.read() or "null")


def main() -> None:
    """Write the answers on the real standard output.

    The engine's output goes to standard error.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    asked = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    argv, seconds = asked.get("parser") or ([], 0.0)
    began, parser = time.monotonic(), None
    if argv:
        parser = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True)
    for name, value in DETECTED.items():
        os.environ.setdefault(name, value)
    without_vllm()
    if len(asked["cases"]) == 1:
        found = [answer_to(asked["package"], asked["cases"][0])]
    else:
        # once for all copies of this process; variables are read when a manager is made
        with contextlib.suppress(Exception):
            importlib.import_module(asked["package"] + ".extension.bucketing.common")
        found = [separately(asked["package"], case) for case in asked["cases"]]
    written = ""
    if parser is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            written = parser.communicate(timeout=seconds - (time.monotonic() - began))[0]
        parser.kill()
    json.dump({"answers": found, "parser": written}, answers)


main()
