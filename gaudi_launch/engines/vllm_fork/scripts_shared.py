"""Common parts of the start scripts: reasons, names, cards, network, argv.

A test compares `scripts_1_21`, `scripts_1_22` and `scripts_deepseek` with every recorded launch of
the scripts.
"""

from __future__ import annotations

from collections.abc import Callable

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.decisions import Decisions
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.plan import Source

DTYPES = ("bfloat16", "float16", "fp8", "awq", "gptq")
# 1.22 turns fp32 softmax on, and 1.21 keeps the KV cache in bfloat16 with fp8 weights, for these
QWEN2_7B = ("deepseek-r1-distill-qwen-7b", "qwen2-7b-instruct", "qwen2.5-7b-instruct")
NO_EXPERT_PARALLEL = "llama-4-scout-17b-16e-instruct"
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


def script_rule(line: str = "") -> Message:
    if line:
        return message("plan.script_rule", rule=line)
    return message("plan.script")


def flag_reason(flag: str) -> Message:
    return message("plan.flag", flag=flag)


def base_name(path: str) -> str:
    """Return the last part of a path or hub id, as ``basename`` gives it."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def device_name(context: Context) -> str:
    """Return hl-smi's name of the cards, as in the scripts' file names.

    Return "" when it is unknown.
    """
    return next((card.product for card in context.host.cards if card.product), "") or ""


def check_dtype(dtype: str) -> None:
    """Raise LaunchError for a data type that no script supports."""
    if dtype not in DTYPES:
        raise LaunchError("plan.dtype", ExitCode.USAGE, found=dtype, known=", ".join(DTYPES))


def bucket_variables(
    decisions: Decisions,
    phase: str,
    dimension: str,
    values: dict[str, tuple[int | str, str]],
    origin: str,
) -> None:
    """Propose VLLM_<PHASE>_<DIMENSION>_BUCKET_<NAME> for each name.

    Each has a value and a rule.
    """
    for name, (value, rule) in values.items():
        variable = f"VLLM_{phase}_{dimension}_BUCKET_{name}"
        decisions.env(variable, str(value), script_rule(rule), origin=origin)


def force(
    decisions: Decisions, name: str, value: str, reason: Message, origin: str, *, flag: bool = False
) -> None:
    """Propose a variable that a script exports even if the user exported it."""
    source: Source = "flag" if flag else "computed"
    decisions.force_env(name, value, reason, source=source, origin=origin)


def start_switches(
    context: Context, decisions: Decisions, origin: str, *, true: str, cache_mib: int
) -> None:
    """Propose the variables of -c and -s.

    ``true`` is the script's spelling, ``cache_mib`` its limit of the recipe cache.
    """
    request = context.request
    if request.cache_dir:
        value = f"{request.cache_dir},false,{cache_mib}"
        force(decisions, "PT_HPU_RECIPE_CACHE_CONFIG", value, flag_reason("-c"), origin, flag=True)
    if request.skip_warmup:
        force(decisions, "VLLM_SKIP_WARMUP", true, flag_reason("-s"), origin, flag=True)


def profile_into(decisions: Decisions, case: str, origin: str, *, true: str) -> None:
    """Propose the variables of -f, with a file named after the case."""
    file, reason = f"{case}_profile.json", flag_reason("-f")
    force(decisions, "VLLM_PROFILER_ENABLED", true, reason, origin, flag=True)
    force(decisions, "VLLM_PROFILE_FILE", file, reason, origin, flag=True)


def fp8_weights(context: Context, decisions: Decisions, lower: str, origin: str) -> None:
    """Propose the variables of -d fp8; ``lower`` is the model's folder in lower case."""
    request, reason = context.request, flag_reason("-d fp8")
    folder = request.scripts_dir or "scripts"
    config = request.quant_config or f"{folder}/quantization/{lower}/maxabs_quant_g2.json"
    decisions.env("QUANT_CONFIG", config, reason, origin=origin)
    force(decisions, "PT_HPU_WEIGHT_SHARING", "0", reason, origin)


def visible_modules(context: Context, decisions: Decisions, origin: str) -> None:
    """Propose the cards for the engine: -m as given, else the planned ones.

    One card of -m is set by HLS_MODULE_ID.
    """
    request, modules = context.request, context.placement.modules
    words = ",".join(str(module) for module in modules)
    if request.modules is not None and len(modules) == 1:
        force(decisions, "HLS_MODULE_ID", words, flag_reason("-m"), origin, flag=True)
    elif request.modules is not None:
        force(decisions, "HABANA_VISIBLE_MODULES", words, flag_reason("-m"), origin, flag=True)
    else:
        force(decisions, "HABANA_VISIBLE_MODULES", words, message("plan.placement"), origin)


def network(
    context: Context, decisions: Decisions, origin: str, host_ip: str | None = None
) -> None:
    """Propose this machine's address and interface for the processes of one job.

    Loopback where none is up.
    """
    usable = [i for i in context.host.interfaces if i.up and i.addresses and i.name != "lo"]
    chosen = next((i for i in usable if i.default_route), next(iter(usable), None))
    address, name, reason = "127.0.0.1", "lo", message("plan.no_interface")
    if chosen:
        address = next((a for a in chosen.addresses if "." in a), chosen.addresses[0])
        name, reason = chosen.name, message("plan.interface", name=chosen.name)
    if host_ip:
        decisions.env("VLLM_HOST_IP", host_ip, script_rule(), origin=origin)
    else:
        decisions.env("VLLM_HOST_IP", address, reason, origin=origin)
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


def given_by_user(context: Context, flag: str) -> bool:
    return flag == "-w" or getattr(context.request, _GIVEN[flag]) is not None


Add = Callable[..., None]


def option_adder(context: Context, decisions: Decisions, origin: str) -> Add:
    """Return ``add(option, value, flag="", rule="")``, which proposes an option.

    Its source is the user's option where that was given.
    """

    def add(option: str, value: str | int | None, flag: str = "", rule: str = "") -> None:
        source: Source = "computed"
        reason = script_rule(rule)
        if flag and given_by_user(context, flag):
            source, reason = "flag", flag_reason(flag)
        text = None
        if value is not None:
            text = str(value)
        decisions.option(option, text, reason, source=source, origin=origin)

    return add
