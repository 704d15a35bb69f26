"""Reference tuning: the common parts of the scripts, and the differences.

The engine gets the scripts' environment and options; the deliberate differences are around them.
Each release's script is in the module of that release; a test compares them with every recorded
launch. HabanaAI/vllm-fork@aice/v1.21.0 scripts/start_gaudi_vllm_server.sh and scripts/utils.sh
(1.22 alike), deepseek_r1 scripts/quickstart/start_vllm.sh.
"""

from __future__ import annotations

from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, Source
from gaudi_launch.core.planning.request import Request

DTYPES = ("bfloat16", "float16", "fp8", "awq", "gptq")
# 1.22 turns fp32 softmax on, and 1.21 keeps the KV cache in bfloat16 with fp8 weights, for these
QWEN2_7B = ("deepseek-r1-distill-qwen-7b", "qwen2-7b-instruct", "qwen2.5-7b-instruct")
NO_EXPERT_PARALLEL = "llama-4-scout-17b-16e-instruct"


def script_rule(line: str = "") -> Message:
    if line:
        return message("plan.script_rule", rule=line)
    return message("plan.script")


def flag_reason(flag: str) -> Message:
    return message("plan.flag", flag=flag)


def device_name(context: Context) -> str:
    """Return hl-smi's name of the cards, as in the scripts' file names.

    Return "" when it is unknown.
    """
    return next((card.product for card in context.host.cards if card.product), "") or ""


def check_dtype(dtype: str) -> None:
    """Raise LaunchError for a data type that no script supports."""
    if dtype not in DTYPES:
        raise LaunchError("plan.dtype", ExitCode.USAGE, found=dtype, known=", ".join(DTYPES))


@dataclass(frozen=True)
class Script:
    """The proposals of one start script, ``origin``."""

    context: Context
    decisions: Decisions
    origin: str

    def default(self, name: str, value: str | int, rule: str = "") -> None:
        """Propose a variable that the script exports unless the user did."""
        self.decisions.env(name, str(value), script_rule(rule), origin=self.origin)

    def force(self, name: str, value: str | int, rule: str = "") -> None:
        """Propose a variable that the script exports even if the user exported it."""
        reason = script_rule(rule)
        self.decisions.force_env(name, str(value), reason, source="computed", origin=self.origin)

    def flag(self, name: str, value: str, flag: str, *, given: bool = True) -> None:
        """Propose a variable of one of the script's options, over the user's variable."""
        source: Source = "flag" if given else "computed"
        self.decisions.force_env(name, value, flag_reason(flag), source=source, origin=self.origin)

    def buckets(self, dimension: str, *values: tuple[int | str, str]) -> None:
        """Propose VLLM_<DIMENSION>_BUCKET_MIN, _STEP, _MAX and, with four values, _LIMIT.

        Each has a value and a rule.
        """
        for name, (value, rule) in zip(("MIN", "STEP", "MAX", "LIMIT"), values, strict=False):
            self.default(f"VLLM_{dimension}_BUCKET_{name}", value, rule)

    def option(self, option: str, value: str | int | None, flag: str = "", rule: str = "") -> None:
        """Propose an option, from the user's ``flag`` where that was given."""
        source: Source = "computed"
        reason = script_rule(rule)
        request = self.context.request
        if flag == "-w" or (flag and getattr(request, _GIVEN[flag]) is not None):
            source, reason = "flag", flag_reason(flag)
        self.decisions.option(option, mapped(str, value), reason, source=source, origin=self.origin)

    def switches(self, *, true: str, cache_mib: int) -> None:
        """Propose the variables of -c and -s.

        ``true`` is the script's spelling, ``cache_mib`` its limit of the recipe cache.
        """
        request = self.context.request
        if request.cache_dir:
            value = f"{request.cache_dir},false,{cache_mib}"
            self.flag("PT_HPU_RECIPE_CACHE_CONFIG", value, "-c")
        if request.skip_warmup:
            self.flag("VLLM_SKIP_WARMUP", true, "-s")

    def profile(self, case: str, *, true: str) -> None:
        """Propose the variables of -f, with a file named after the case."""
        self.flag("VLLM_PROFILER_ENABLED", true, "-f")
        self.flag("VLLM_PROFILE_FILE", f"{case}_profile.json", "-f")

    def fp8_weights(self, lower: str) -> None:
        """Propose the variables of -d fp8; ``lower`` is the model's folder in lower case."""
        request, reason = self.context.request, flag_reason("-d fp8")
        folder = request.scripts_dir or "scripts"
        config = request.quant_config or f"{folder}/quantization/{lower}/maxabs_quant_g2.json"
        self.decisions.env("QUANT_CONFIG", config, reason, origin=self.origin)
        self.flag("PT_HPU_WEIGHT_SHARING", "0", "-d fp8", given=False)

    def visible_modules(self) -> None:
        """Propose the cards for the engine: -m as given, else the planned ones.

        One card of -m is set by HLS_MODULE_ID.
        """
        modules = self.context.placement.modules
        words = ",".join(str(module) for module in modules)
        name = "HABANA_VISIBLE_MODULES"
        if self.context.request.modules is None:
            reason = message("plan.placement")
            self.decisions.force_env(name, words, reason, source="computed", origin=self.origin)
            return
        if len(modules) == 1:
            name = "HLS_MODULE_ID"
        self.flag(name, words, "-m")

    def network(self, host_ip: str | None = None) -> None:
        """Propose this machine's address and interface for the processes of one job.

        Loopback where none is up.
        """
        interfaces = self.context.host.interfaces
        usable = [i for i in interfaces if i.up and i.addresses and i.name != "lo"]
        chosen = next((i for i in usable if i.default_route), next(iter(usable), None))
        address, name, reason = "127.0.0.1", "lo", message("plan.no_interface")
        if chosen:
            address = next((a for a in chosen.addresses if "." in a), chosen.addresses[0])
            name, reason = chosen.name, message("plan.interface", name=chosen.name)
        if host_ip:
            self.default("VLLM_HOST_IP", host_ip)
        else:
            self.decisions.env("VLLM_HOST_IP", address, reason, origin=self.origin)
        for variable in ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"):
            self.decisions.env(variable, name, reason, origin=self.origin)


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


def cpu_differences(host: Host, command: Command) -> tuple[Message, ...]:
    """Return the difference of the CPUs of a plan from those that the script binds."""
    # the first CPU of every core, which is all that the scripts bind
    first = []
    for cpu in command.cpus:
        siblings = host.cpu_siblings.get(cpu, (cpu,))
        if cpu == min(siblings):
            first.append(cpu)
    cores = tuple(first)
    if cores == command.cpus:
        return ()
    ours, script = format_cpus(command.cpus), format_cpus(cores)
    return (message("reference.cpus", ours=ours, script=script),)


def deliberate_differences(
    request: Request, host: Host, placement: Placement, command: Command
) -> tuple[Message, ...]:
    """Return the differences of a plan from the script of aice/v1.21.0 or v1.22.0."""
    found = [*cpu_differences(host, command)]
    if request.modules is None:
        cards = ",".join(str(module) for module in placement.modules)
        found.append(message("reference.cards", cards=cards))
    found.append(message("reference.busy"))
    found.append(message("reference.exit_code"))
    found.append(message("reference.shell"))
    return tuple(found)
