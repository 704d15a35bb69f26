"""Code that engines share: settings as a command, and options that were given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from gaudi_launch.core.planning.engine_args import option_words
from gaudi_launch.core.planning.plan import Setting, variables_of
from gaudi_launch.core.planning.request import Request

# the forks' entry, and the CPU build's: `vllm serve` reads the metadata of a distribution vllm
API_SERVER = ("-m", "vllm.entrypoints.openai.api_server")
# vLLM's CPU build, on which the engines without cards are based
VLLM = "0.32.0"
# fields of Request that only cards, or only the forks, support
WITHOUT = {
    "modules": "-m",
    "reduce": "-r",
    "cache_dir": "-c",
    "skip_warmup": "-s",
    "profile": "-f",
    "scheduler_steps": "-e",
    "no_zero_padding": "-z",
    "no_fused_sdpa": "-a",
    "inc_fp8": "-q",
    "quant_config": "--quant-config",
    "padding_limit": "--padding-limit",
    "max_prefill_seqs": "--max-prefill-seqs",
    "max_capture_len": "--max-capture-len",
    "memory_utilization": "--memory-utilization",
}
# the spellings of the files of `calibrate_model.sh`'s steps, of the forks and the plugin
STEPS = {
    1: ("step-1-prepare-calibration-dataset.py",),
    2: ("step-2-measure-scales.py",),
    3: ("step-3-postprocess-measure.py", "step-3-postprocess_measure.py"),
    4: ("step-4-quantize-scales.py",),
}

_Rest = TypeVar("_Rest")


def base_name(path: str) -> str:
    """Return the last part of a path or hub id, as ``basename`` gives it."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def options_of(settings: Sequence[Setting]) -> list[str]:
    """Return the options that are sent, as arguments, in the order of the settings."""
    argv: list[str] = []
    for setting in settings:
        if setting.kind == "option" and setting.sent:
            argv += option_words(setting.name, setting.value)
    return argv


def sent_variables(settings: Sequence[Setting]) -> dict[str, str]:
    """Return the variables that we set for the engine's process."""
    return variables_of([setting for setting in settings if setting.sent])


def given(request: Request, fields: Iterable[tuple[str, _Rest]]) -> list[_Rest]:
    """Return the value paired with each field of the request that the user gave."""
    return [rest for name, rest in fields if getattr(request, name) not in (None, False)]
