"""Options of other tools and their names here, for hints in usage errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message

# vLLM's names (vllm-project/vllm:vllm/engine/arg_utils.py), TGI's
# (huggingface/text-generation-inference: launcher/src/main.rs), and those of kubectl, docker,
# llama.cpp and ollama; the first of our names that a command has is meant
_OURS: dict[str, tuple[str, ...]] = {
    "--model": ("-w",),
    "--model-id": ("-w",),
    "--model-path": ("-w",),
    "--tensor-parallel-size": ("-n",),
    "-tp": ("-n",),
    "--tp": ("-n",),
    "--num-shard": ("-n",),
    "--gpu-memory-utilization": ("--memory-utilization",),
    "--served-model-name": ("--served-name",),
    "--quantization": ("-d",),
    "--kv-cache-dtype": ("-d",),
    "--max-seq-len": ("-l",),
    "--max-total-tokens": ("-l",),
    "--max-input-length": ("-i",),
    "--max-input-tokens": ("-i",),
    "--max-batch-prefill-tokens": ("-t",),
    "--max-concurrent-requests": ("-b",),
    "--hostname": ("-u",),
    "--num-gpus": ("-n",),
    "--gpus": ("-n",),
    "--gpu": ("-n",),
    "--num-cards": ("-n",),
    "--devices": ("-m",),
    "--ctx-size": ("-l",),
    "--context-length": ("-l",),
    "--num-ctx": ("-l",),
    "--batch-size": ("-b",),
    "--max-batch-size": ("-b",),
    "--model-name": ("--served-name",),
    "--alias": ("--served-name",),
    "--daemon": ("--detach",),
    "--background": ("--detach",),
    "--watch": ("-f",),
    "--timeout": ("--phase-timeout",),
    "--tail": ("-n",),
    "--no-stream": ("--once",),
    "--dry-run": ("gaudi-launch plan",),
    # of the hub's program (huggingface_hub: `hf download`)
    "--local-dir": ("--to",),
    # of `vllm bench serve` (vllm-project/vllm:vllm/benchmarks/serve.py)
    "--request-rate": ("--rate",),
    "--num-prompts": ("--requests",),
    "--max-concurrency": ("--concurrency",),
    "--random-input-len": ("-i",),
    "--random-output-len": ("-o",),
    "-n": ("-N",),
    # of other commands here
    "--accelerator": ("--machine",),
    "--machine": ("--accelerator",),
    "--goal": ("--for",),
}
# click reads them as -t with the value p, and so on
_SHORT_WITH_TWO_LETTERS = ("-tp",)


def foreign_option(name: str, known: Collection[str]) -> Message | None:
    """Return the hint for another tool's option.

    Return None where no option of the command does the same. ``known``: every spelling that the
    command has.
    """
    found = name.partition("=")[0]
    for ours in _OURS.get(found.replace("_", "-"), ()):
        if ours in known or (ours.startswith("gaudi-launch") and "-w" in known):
            return message("common.foreign_option", found=found, ours=ours)
    return None


def foreign_names(known: Collection[str]) -> dict[str, str]:
    """Return other tools' long options with ours, of those that the command has."""
    found: dict[str, str] = {}
    for name, candidates in _OURS.items():
        ours = next((each for each in candidates if each in known), None)
        if ours is not None and name.startswith("--"):
            found[name] = ours
    return found


def refuse_two_letters(typed: Sequence[str], known: Collection[str]) -> None:
    """Raise LaunchError (USAGE) for ``-tp``, which would be read as ``-t p``."""
    for word in typed:
        if word not in _SHORT_WITH_TWO_LETTERS:
            continue
        hint = foreign_option(word, known)
        if hint is not None:
            raise LaunchError(hint.id, ExitCode.USAGE, **hint.values)
