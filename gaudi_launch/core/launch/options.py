"""The options of a launch, as typed or given to the Python API.

`to_request` makes a Request of them. The short options are those of the 1.21 start script; they
mean the same for every engine.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import option_of, switch, value, values
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.planning import parse as read

if TYPE_CHECKING:
    from gaudi_launch.core.planning.request import Request

_MODEL, _CARDS, _LENGTHS, _ENGINE, _MORE = "Model and address", "Cards", "Lengths", "Engine", "More"
_SHORT_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
# two digits: no server has more than 64 cards
# https://www.modelscope.cn/Qwen/QwQ-32B.git, https://huggingface.co/Qwen/QwQ-32B/tree/main
_RANGE = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")


@dataclass(frozen=True)
class LaunchOptions:
    """The model to launch and its settings, each value as typed.

    None or False where not given. ``extra`` are the arguments after ``--``, for the engine.
    `to_request` reads and checks the values.
    """

    model: str | None = value(
        "-w",
        "--weights",
        help="Model: a folder or a hub ID.",
        panel=_MODEL,
        metavar="MODEL",
        bare=True,
    )
    host: str | None = value(
        "-u",
        "--host",
        help="Address to listen on (default 127.0.0.1; in a pod 0.0.0.0).",
        panel=_MODEL,
        metavar="ADDRESS",
    )
    port: str | None = value(
        "-p",
        "--port",
        help="Port to listen on (default 30001; in a pod 8000).",
        panel=_MODEL,
        metavar="PORT",
    )
    served_name: str | None = value(
        "--served-name", help="The model's name in requests.", panel=_MODEL, metavar="NAME"
    )
    cards: str | None = value(
        "-n", "--cards", help="Number of cards, selected automatically.", panel=_CARDS, metavar="N"
    )
    modules: str | None = value(
        "-m", "--modules", help="Module IDs to use, e.g. 0,1,2,3.", panel=_CARDS, metavar="LIST"
    )
    plan_file: str | None = value(
        "--plan", help="Plan the options of a file that --save wrote.", panel=_MODEL, metavar="FILE"
    )
    machine: str | None = value(
        "--machine",
        help="Plan for a snapshot file or simulated:NAME.",
        panel=_CARDS,
        metavar="MACHINE",
    )
    dtype: str | None = value(
        "-d", "--dtype", help="bfloat16, float16, fp8, awq or gptq.", panel=_ENGINE, metavar="TYPE"
    )
    input_range: str | None = value(
        "-i",
        "--input",
        help="Input tokens per request, MIN,MAX: 64,32k (k 1000, K 1024).",
        panel=_LENGTHS,
        metavar="RANGE",
    )
    output_range: str | None = value(
        "-o",
        "--output",
        help="Output tokens per request, MIN,MAX: 1,2k.",
        panel=_LENGTHS,
        metavar="RANGE",
    )
    max_num_batched_tokens: str | None = value(
        "-t",
        "--max-num-batched-tokens",
        help="Prompt tokens per step, e.g. 8k.",
        panel=_LENGTHS,
        metavar="N",
    )
    max_model_len: str | None = value(
        "-l",
        "--max-model-len",
        help="Maximum of input plus output, e.g. 32k (k 1000, K 1024).",
        panel=_LENGTHS,
        metavar="N",
    )
    max_num_seqs: str | None = value(
        "-b", "--max-num-seqs", help="Concurrent requests.", panel=_LENGTHS, metavar="N"
    )
    max_prefill_seqs: str | None = value(
        "--max-prefill-seqs", help="Prompts per prefill step.", panel=_LENGTHS, metavar="N"
    )
    reduce: str | None = value(
        "-r",
        "--reduce",
        help="Hot batch and length, warmed up tightly: 8,24k.",
        panel=_LENGTHS,
        metavar="BATCH,LEN",
    )
    padding_limit: str | None = value(
        "--padding-limit",
        help="Maximum padding fraction of a bucket, 0 to 0.5.",
        panel=_LENGTHS,
        metavar="X",
    )
    max_capture_len: str | None = value(
        "--max-capture-len",
        help="Maximum tokens of a captured graph, e.g. 8k.",
        panel=_LENGTHS,
        metavar="N",
    )
    engine: str | None = value(
        "--engine", help="auto, or one of 'gaudi-launch engines'.", panel=_ENGINE, metavar="ENGINE"
    )
    python: str | None = value(
        "--python",
        help="The engine's interpreter (default: python3 on PATH).",
        panel=_ENGINE,
        metavar="PATH",
    )
    tuning: str | None = value(
        "--tuning",
        help="auto, or reference: the settings of the start scripts.",
        panel=_ENGINE,
        metavar="HOW",
    )
    memory_utilization: str | None = value(
        "--memory-utilization",
        help="Fraction of free card memory to use.",
        panel=_ENGINE,
        metavar="X",
    )
    quant_config: str | None = value(
        "--quant-config", help="Quantisation file (QUANT_CONFIG).", panel=_ENGINE, metavar="FILE"
    )
    inc_fp8: bool = switch(
        "-q", "--inc-fp8", help="FP8 by Intel Neural Compressor (deepseek_r1).", panel=_ENGINE
    )
    scheduler_steps: str | None = value(
        "-e", "--scheduler-steps", help="Decode steps per scheduling.", panel=_ENGINE, metavar="N"
    )
    replicas: str | None = value(
        "--replicas",
        help="ray-serve: replicas of the model, N or MIN..MAX.",
        panel=_ENGINE,
        metavar="N",
    )
    target_ongoing: str | None = value(
        "--ongoing",
        help="ray-serve: requests per replica before another one starts.",
        panel=_ENGINE,
        metavar="N",
    )
    time_scale: str | None = value(
        "--time-scale",
        help="simulated: divide the times of the cards by X.",
        panel=_ENGINE,
        metavar="X",
    )
    faults: tuple[str, ...] = values(
        "--fault",
        help="simulated: card-lost@120s, slow-card=3, hang, crash, compile, oom.",
        panel=_ENGINE,
        metavar="FAULT",
    )
    cache_dir: str | None = value(
        "-c", "--cache", help="Folder of the recipe cache.", panel=_MORE, metavar="DIR"
    )
    skip_warmup: bool = switch(
        "-s",
        "--skip-warmup",
        help="Skip the warm-up; shapes are compiled on first use.",
        panel=_MORE,
    )
    profile: bool = switch("-f", "--profile", help="Turn on the engine's profiler.", panel=_MORE)
    no_zero_padding: bool = switch(
        "-z", "--no-zero-padding", help="Turn off zero padding.", panel=_MORE
    )
    no_fused_sdpa: bool = switch(
        "-a", "--no-fused-sdpa", help="Turn off the fused attention kernel.", panel=_MORE
    )
    trust_remote_code: bool = switch(
        "--trust-remote-code", help="Allow Python code from the model folder.", panel=_MORE
    )
    force: bool = switch("--force", help="Continue although a check fails.", panel=_MORE)
    extra: tuple[str, ...] = values(
        help="The model, if -w is not given. Options after -- are passed to the engine unchanged.",
        metavar="[MODEL] [-- ENGINE OPTIONS]",
    )

    def given(self) -> tuple[tuple[str, str], ...]:
        """Return the field and the first name of each given option.

        They are in the order of the help.
        """
        found: list[tuple[str, str]] = []
        for each in fields(self):
            option = option_of(each)
            if option is not None and option.names and getattr(self, each.name):
                found.append((each.name, option.names[0]))
        return tuple(found)


def to_request(options: LaunchOptions, environment: Mapping[str, str] | None = None) -> Request:
    """Return the Request of these options in this process.

    It has the process's environment, its cache folder and the time. Raises LaunchError (USAGE) for
    an invalid value.
    """
    from gaudi_launch.core.base.paths import cache_dir

    return read_request(
        options,
        environment=dict(os.environ if environment is None else environment),
        files_dir=str(cache_dir() / "buckets"),
        stamp=time.strftime("%Y-%m-%d-%H-%M-%S"),
    )


def read_request(
    options: LaunchOptions, *, environment: Mapping[str, str], files_dir: str, stamp: str
) -> Request:
    """Return the Request of these options.

    Pure. Raises LaunchError (USAGE) for an invalid value.
    """
    from gaudi_launch.core.engines.registry import WITH_INC_FP8
    from gaudi_launch.core.models.config import refuse_address
    from gaudi_launch.core.planning.placement import parse_modules
    from gaudi_launch.core.planning.request import Request

    if not options.model:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    refuse_address(options.model)
    tuning = options.tuning or "auto"
    if tuning not in ("auto", "reference"):
        raise LaunchError("plan.tuning", ExitCode.USAGE, found=tuning)
    one_is_both = tuning == "reference"
    ranges = read.ranges(options.input_range, options.output_range)
    engine = options.engine or "auto"
    if options.inc_fp8 and engine == "auto":
        engine = WITH_INC_FP8
    return Request(
        model=options.model,
        cards=_number("-n", options.cards, 64),
        modules=mapped(lambda text: parse_modules(_expanded(text)), options.modules),
        host=options.host,
        port=mapped(lambda text: read.port("-p", text), options.port),
        dtype=_SHORT_DTYPES.get(options.dtype or "", options.dtype),
        input_range=ranges.input,
        output_range=ranges.output,
        open_ranges=ranges.open,
        max_num_batched_tokens=_tokens("-t", options.max_num_batched_tokens),
        max_model_len=_tokens("-l", options.max_model_len),
        max_num_seqs=_number("-b", options.max_num_seqs, read.MOST_SEQS),
        scheduler_steps=_number("-e", options.scheduler_steps, read.MOST_SEQS),
        cache_dir=options.cache_dir,
        reduce=mapped(lambda text: read.reduce(text, one_is_both=one_is_both), options.reduce),
        skip_warmup=options.skip_warmup,
        profile=options.profile,
        no_zero_padding=options.no_zero_padding,
        no_fused_sdpa=options.no_fused_sdpa,
        inc_fp8=options.inc_fp8,
        quant_config=options.quant_config,
        max_prefill_seqs=_number("--max-prefill-seqs", options.max_prefill_seqs, read.MOST_SEQS),
        padding_limit=_fraction("--padding-limit", options.padding_limit, 0.0, 0.5),
        memory_utilization=_fraction("--memory-utilization", options.memory_utilization, 0.01, 1.0),
        max_capture_len=_tokens("--max-capture-len", options.max_capture_len),
        engine=engine,
        python=options.python,
        tuning=tuning,
        # a switch that was not given is undecided, not False
        trust_remote_code=options.trust_remote_code or None,
        served_name=options.served_name,
        replicas=mapped(read.replicas, options.replicas),
        target_ongoing=mapped(lambda text: read.number("--ongoing", text), options.target_ongoing),
        time_scale=mapped(float, _fraction("--time-scale", options.time_scale, 0.1, 1000.0)),
        faults=tuple(options.faults),
        force=options.force,
        stamp=stamp,
        files_dir=files_dir,
        environment=environment,
        extra=options.extra,
    )


def _expanded(text: str) -> str:
    """Return a list of module IDs with each range ``0-3`` written out.

    What is not a range stays.
    """
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or int(match[1]) > int(match[2]):
            found.append(part)
            continue
        found += [str(module) for module in range(int(match[1]), int(match[2]) + 1)]
    return ",".join(found)


def _number(flag: str, text: str | None, most: int) -> int | None:
    return mapped(lambda given: read.number(flag, given, 1, most), text)


def _tokens(flag: str, text: str | None) -> int | None:
    return mapped(lambda given: read.tokens(flag, given), text)


def _fraction(flag: str, text: str | None, least: float, most: float) -> str | None:
    return mapped(lambda given: read.fraction(flag, given, least, most), text)
