"""The options of a launch: each is one field with its reader, help and default.

The short options are those of the 1.21 start script; they mean the same for every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, switch, value, values
from gaudi_launch.core.planning import parse as read
from gaudi_launch.core.planning import parse_ranges

_MODEL, _CARDS, _LENGTHS, _ENGINE, _MORE = "Model and address", "Cards", "Lengths", "Engine", "More"
SHORT_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_cards = partial(read.number, most=read.MOST_CARDS)
_seqs = partial(read.number, most=read.MOST_SEQS)


def _tuning(flag: str, text: str) -> str:
    if text not in ("auto", "reference"):
        raise LaunchError("plan.tuning", ExitCode.USAGE, found=text)
    return text


def _output(flag: str, text: str) -> tuple[int, int]:
    # other programs have -o for the output path; 2k is a length
    figures = text.lower().rstrip("km").replace(",", "")
    if not figures.isdigit() and any(each.isalpha() or each in "/~" for each in text):
        raise LaunchError("render.output_option", ExitCode.USAGE, found=text)
    return parse_ranges.pair(flag, text)


def _dtype(flag: str, text: str) -> str:
    return SHORT_DTYPES.get(text, text)


def _time_scale(flag: str, text: str) -> float:
    return float(parse_ranges.fraction(flag, text, 0.1, 1000.0))


@dataclass(frozen=True)
class LaunchOptions(OptionRecord):
    """The model to launch and its settings; None or False where not given.

    A value may be given as text, as on the command line. Lengths are tokens, ``reduce`` is (hot
    batch, hot length), ``padding_limit`` and ``memory_utilization`` stay as written: "0.0" is not
    "0" to an engine. ``extra`` are the arguments after ``--``, for the engine. Raises LaunchError
    (USAGE) for a value out of bounds.
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
    port: int | None = value(
        "-p",
        "--port",
        help="Port to listen on (default 30001; in a pod 8000).",
        panel=_MODEL,
        metavar="PORT",
        read=read.port,
    )
    served_name: str | None = value(
        "--served-name", help="The model's name in requests.", panel=_MODEL, metavar="NAME"
    )
    cards: int | None = value(
        "-n",
        "--cards",
        help="Number of cards, selected automatically.",
        panel=_CARDS,
        metavar="N",
        read=_cards,
    )
    modules: tuple[int, ...] | None = value(
        "-m",
        "--modules",
        help="Module IDs to use, e.g. 0,1,2,3.",
        panel=_CARDS,
        metavar="LIST",
        read=parse_ranges.module_ranges,
    )
    plan_file: str | None = value(
        "--plan", help="Plan the options of a file that --save wrote.", panel=_MODEL, metavar="FILE"
    )
    machine: str | None = value(
        "--machine",
        help="Another machine: a snapshot file, simulated:NAME, or an idle server of gaudi2...",
        panel=_CARDS,
        metavar="MACHINE",
    )
    dtype: str | None = value(
        "-d",
        "--dtype",
        help="bfloat16, float16, fp8, awq or gptq.",
        panel=_ENGINE,
        metavar="TYPE",
        read=_dtype,
    )
    input_range: tuple[int, int] | None = value(
        "-i",
        "--input",
        help="Input tokens per request, MIN,MAX: 64,32k (k 1000, K 1024).",
        panel=_LENGTHS,
        metavar="RANGE",
        read=parse_ranges.pair,
    )
    output_range: tuple[int, int] | None = value(
        "-o",
        "--output",
        help="Output tokens per request, MIN,MAX: 1,2k.",
        panel=_LENGTHS,
        metavar="RANGE",
        read=_output,
    )
    max_num_batched_tokens: int | None = value(
        "-t",
        "--max-num-batched-tokens",
        help="Prompt tokens per step, e.g. 8k.",
        panel=_LENGTHS,
        metavar="N",
        read=read.tokens,
    )
    max_model_len: int | None = value(
        "-l",
        "--max-model-len",
        help="Maximum of input plus output, e.g. 32k (k 1000, K 1024).",
        panel=_LENGTHS,
        metavar="N",
        read=read.tokens,
    )
    max_num_seqs: int | None = value(
        "-b",
        "--max-num-seqs",
        help="Concurrent requests.",
        panel=_LENGTHS,
        metavar="N",
        read=_seqs,
    )
    max_prefill_seqs: int | None = value(
        "--max-prefill-seqs",
        help="Prompts per prefill step.",
        panel=_LENGTHS,
        metavar="N",
        read=_seqs,
    )
    reduce: tuple[int, int] | None = value(
        "-r",
        "--reduce",
        help="Hot batch and length, warmed up tightly: 8,24k.",
        panel=_LENGTHS,
        metavar="BATCH,LEN",
        read=parse_ranges.reduce,
    )
    padding_limit: str | None = value(
        "--padding-limit",
        help="Maximum padding fraction of a bucket, 0 to 0.5.",
        panel=_LENGTHS,
        metavar="X",
        read=partial(parse_ranges.fraction, least=0.0, most=0.5),
    )
    max_capture_len: int | None = value(
        "--max-capture-len",
        help="Maximum tokens of a captured graph, e.g. 8k.",
        panel=_LENGTHS,
        metavar="N",
        read=read.tokens,
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
        read=_tuning,
    )
    memory_utilization: str | None = value(
        "--memory-utilization",
        help="Fraction of free card memory to use.",
        panel=_ENGINE,
        metavar="X",
        read=partial(parse_ranges.fraction, least=0.01, most=1.0),
    )
    quant_config: str | None = value(
        "--quant-config", help="Quantisation file (QUANT_CONFIG).", panel=_ENGINE, metavar="FILE"
    )
    inc_fp8: bool = switch(
        "-q", "--inc-fp8", help="FP8 by Intel Neural Compressor (deepseek_r1).", panel=_ENGINE
    )
    scheduler_steps: int | None = value(
        "-e",
        "--scheduler-steps",
        help="Decode steps per scheduling.",
        panel=_ENGINE,
        metavar="N",
        read=_seqs,
    )
    replicas: tuple[int, int] | None = value(
        "--replicas",
        help="ray-serve: replicas of the model, N or MIN..MAX.",
        panel=_ENGINE,
        metavar="N",
        read=parse_ranges.replicas,
        join="..",
    )
    target_ongoing: int | None = value(
        "--ongoing",
        help="ray-serve: requests per replica before another one starts.",
        panel=_ENGINE,
        metavar="N",
        read=read.number,
    )
    time_scale: float | None = value(
        "--time-scale",
        help="simulated: divide the times of the cards by X.",
        panel=_ENGINE,
        metavar="X",
        read=_time_scale,
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
    trust_remote_code: bool | None = switch(
        "--trust-remote-code",
        help="Allow Python code from the model folder.",
        panel=_MORE,
        default=None,
    )
    force: bool = switch("--force", help="Continue although a check fails.", panel=_MORE)
    extra: tuple[str, ...] = values(
        help="The model, if -w is not given. Options after -- are passed to the engine unchanged.",
        metavar="[MODEL] [-- ENGINE OPTIONS]",
    )
