"""The branch deepseek_r1 of the fork, with its start script rule for rule.

The script overrides what the user exported.

HabanaAI/vllm-fork@016b6bd20 (deepseek_r1): scripts/quickstart/start_vllm.sh. Calibration:
scripts/run_inc_calib.sh and the two files of scripts/quant_configs that
scripts/quickstart/README.md pairs with an fp8 cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.families import FIXED_LENGTHS
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Limits, OverHosts, Spread
from gaudi_launch.core.planning.lengths import LengthRules
from gaudi_launch.core.planning.passthrough import written
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, Kind, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import for_modules
from gaudi_launch.extensions.vllm_fork.calibration import GATE
from gaudi_launch.extensions.vllm_fork.engine import LENGTHS, SWITCHES, VllmFork
from gaudi_launch.extensions.vllm_fork.fp8 import names_quant_file
from gaudi_launch.extensions.vllm_fork.pooling import fork_task, pools
from gaudi_launch.extensions.vllm_fork.reference import (
    Script,
    cpu_differences,
    device_name,
    script_rule,
)

ORIGIN = "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/start_vllm.sh"

# start_vllm.sh exports these in any case
_FIXED = (
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
_INC = (
    ("VLLM_REQUANT_FP8_INC", "1"),
    ("VLLM_ENABLE_RUNTIME_DEQUANT", "1"),
    ("VLLM_HPU_MARK_SCALES_AS_CONST", "false"),
    ("INC_FORCE_NAIVE_SCALING", "1"),
)
# the longest length of one machine (start_vllm.sh: "maximal value for single node: 32768")
_LONGEST = 32768
_CALIBRATION_RULES = Rules(
    measure_names=("lm_head", GATE),
    types=(),
    names=("lm_head", GATE),
    method="ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2",
    scales="const",
    env={
        "PT_HPU_LAZY_MODE": "1",
        "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_ENABLE_RUNTIME_DEQUANT": "1",
        "VLLM_PROMPT_BS_BUCKET_MIN": "1",
        "VLLM_PROMPT_BS_BUCKET_MAX": "1",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "512",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_DECODE_BS_BUCKET_MIN": "1",
        "VLLM_DECODE_BS_BUCKET_MAX": "1",
        "VLLM_REQUANT_FP8_INC": "1",
        "VLLM_MOE_N_SLICE": "1",
    },
    quant_more={},
)
_CALIBRATION = Calibration(
    release="deepseek_r1",
    family="deepseek_r1",
    rules=lambda name: _CALIBRATION_RULES,
    home="https://github.com/HabanaAI/vllm-fork",
    branch="deepseek_r1",
    folder="scripts",
    steps={2: ("run_example_tp.py",)},
    installed=("source",),
    inside="scripts",
    one_step=True,
    serve_with="-q",
)
GUIDE = "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/set_head_node.sh"
_REQUANT = "VLLM_REQUANT_FP8_INC"
# the quantisation file that the branch's guide pairs with a bf16 cache
_BF16_CACHE = "scripts/quant_configs/inc_quant_per_channel_bf16kv.json"
_TWO_NODES: tuple[tuple[Kind, str, str], ...] = (
    ("env", "VLLM_GRAPH_RESERVED_MEM", "0.2"),
    ("option", "--gpu_memory_utilization", "0.9"),
    ("option", "--num-scheduler-steps", "1"),
)


def _quantisation_paths(script: Script) -> None:
    # start_vllm.sh is in scripts/quickstart: its measurements are two folders up, its configs one
    # folder up
    request = script.context.request
    scripts = request.scripts_dir or "scripts/quickstart"
    up = "."
    if "/" in scripts.rstrip("/"):
        up = scripts.rstrip("/").rsplit("/", 1)[0]
    top = "."
    if "/" in up:
        top = up.rsplit("/", 1)[0]
    ours = f"{up}/quant_configs/inc_quant_per_channel_with_fp8kv_config.json"
    script.flag("QUANT_CONFIG", request.quant_config or ours, "-q")
    script.flag("INC_MEASUREMENT_DUMP_PATH_PREFIX", top or "/", "-q")


def _buckets(script: Script) -> None:
    limits, request = script.context.limits, script.context.request
    exported = request.environment.get("BUCKET_PADDING_RATIO")
    if exported:
        script.decisions.env("BUCKET_PADDING_RATIO", exported, script_rule())
    usual = 8
    if device_name(script.context).startswith("HL-288"):
        usual = 2
    seqs, length = limits.max_num_seqs, limits.max_model_len
    rule = "min(-b, 2 on PCIe boxes, else 8)"
    for dimension, least, step, most, why in (
        ("PROMPT_BS", 1, 1, limits.max_num_prefill_seqs, "--max-num-prefill-seqs"),
        ("PROMPT_SEQ", 128, 128, limits.max_num_batched_tokens, "--max-num-batched-tokens"),
        ("DECODE_BS", 1, min(seqs, usual), seqs, rule),
        ("DECODE_BLOCK", 128, 128, max(seqs * length // 128, 128), "max(-b * -l / 128, 128)"),
    ):
        script.force(f"VLLM_{dimension}_BUCKET_MIN", least)
        script.force(f"VLLM_{dimension}_BUCKET_STEP", step)
        script.force(f"VLLM_{dimension}_BUCKET_MAX", most, why)
        limit = f"VLLM_{dimension}_BUCKET_LIMIT"
        if request.padding_limit is None:
            script.force(limit, exported or "0.25")
        else:
            script.flag(limit, request.padding_limit or exported or "0.25", "--padding-limit")


def _argv(script: Script, cards: int, utilisation: str) -> None:
    request, limits, add = script.context.request, script.context.limits, script.option
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


class DeepSeekFork(VllmFork):
    """deepseek_r1."""

    version = "deepseek_r1"
    label = "deepseek_r1"
    bucket_family = FIXED_LENGTHS
    lengths = LengthRules(16384, 64)
    without: ClassVar = {
        **LENGTHS,
        **SWITCHES,
        "dtype": "-d",
        "profile": "-f",
        "modules": "-m",
        "memory_utilization": "--memory-utilization",
        "max_capture_len": "--max-capture-len",
    }
    auto_has = frozenset(
        {"reduce", "memory_utilization", "max_capture_len", "modules", "scheduler_steps"}
    )
    can = ("chat", "fp8", "experts")
    calibration = _CALIBRATION
    over_hosts = OverHosts(tensor_guide=GUIDE)
    # it loads fp8 codes as they are
    needs_gaudi2_range = True
    unread = ("VLLM_GPU_MEMORY_UTILIZATION", "HABANA_VISIBLE_DEVICES")
    reasoning_switch = True
    memory_share = "--gpu_memory_utilization"
    profile_named_only = True

    def script(self, context: Context, decisions: Decisions) -> None:
        """Propose every variable and option of scripts/quickstart/start_vllm.sh.

        It overrides the user's.
        """
        request, limits = context.request, context.limits
        cards = context.placement.tensor
        script = Script(context, decisions, ORIGIN)
        for variable, value in _FIXED:
            script.force(variable, value)
        modules = ",".join(str(module) for module in context.placement.modules)
        decisions.force_env(
            "HABANA_VISIBLE_MODULES",
            modules,
            message("plan.placement"),
            source="computed",
            origin=ORIGIN,
        )
        script.force("VLLM_EP_SIZE", cards)
        utilisation = "0.85" if limits.max_model_len <= 18432 else "0.65"
        script.force("VLLM_GPU_MEMORY_UTILIZATION", utilisation, "0.85; 0.65 over 18432")
        script.flag("VLLM_MOE_N_SLICE", "1" if request.inc_fp8 else "8", "-q", given=False)
        if request.inc_fp8:
            for variable, value in _INC:
                script.flag(variable, value, "-q")
            _quantisation_paths(script)
        cache = "/data/warmup_cache" if request.cache_dir is None else request.cache_dir
        if cache:
            value, given = f"{cache},false,16384", request.cache_dir is not None
            script.flag("PT_HPU_RECIPE_CACHE_CONFIG", value, "-c", given=given)
        if request.skip_warmup:
            script.flag("VLLM_SKIP_WARMUP", "True", "-s")
        _buckets(script)
        _argv(script, cards, utilisation)

    def cards(self, request: Request) -> int | None:
        """Return the number of cards if the user gives none: it needs eight."""
        if request.cards is None and request.modules is None:
            return 8
        return super().cards(request)

    def within(self, request: Request, model: Model) -> Limits:
        if request.tuning == "reference" or request.force:
            return super().within(request, model)
        if request.max_model_len is None:
            longest = min(model.max_position_embeddings or _LONGEST, _LONGEST)
            model = replace(model, max_position_embeddings=longest)
        limits = super().within(request, model)
        length = limits.max_model_len
        if length > _LONGEST:
            raise LaunchError(
                "plan.deepseek_too_long",
                ExitCode.USAGE,
                option=written(request.args, "-l"),
                found=length,
                longest=_LONGEST,
            )
        return limits

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for another model, other cards, or options that it lacks."""
        super().refuse(request, host, model)
        if request.tuning == "auto" and pools(model, request.args) and not request.force:
            task = fork_task(model, request.args)
            raise LaunchError("plan.fork_task", ExitCode.MODEL, model=model.name, task=task)
        self._refuse_cards(request, host)

    def _refuse_cards(self, request: Request, host: Host) -> None:
        """Raise LaunchError for other cards, or another number of them."""
        known = [card.product for card in host.cards if card.product]
        if known and not any(name.startswith(("HL-225", "HL-288")) for name in known):
            raise LaunchError("plan.deepseek_platform", ExitCode.MACHINE, found=known[0])
        forced = request.tuning == "auto" and request.force
        if 0 < len(host.modules) < 8 and not forced:
            raise LaunchError("plan.deepseek_machine", ExitCode.MACHINE, found=len(host.modules))
        cards = self.cards(request) or len(request.modules or ()) or 8
        if cards != 8 and not forced:
            allowed = for_modules(request, f"{written(request.args, '-n')} 8")
            raise LaunchError("plan.deepseek_cards", ExitCode.USAGE, found=cards, allowed=allowed)

    def runs_stages(self, model: Model) -> bool:
        """Return False: its guide divides over all cards by tensors only."""
        return False

    def spread(self, spread: Spread) -> tuple[Setting, ...]:
        """Return the changes: experts over all cards, and the script's values.

        The latter are for one engine over two nodes.
        """
        experts = message("cluster.why_experts", cards=spread.tensor)
        changed = [Setting("VLLM_EP_SIZE", str(spread.tensor), "env", "computed", experts, GUIDE)]
        if not spread.ray:
            return tuple(changed)
        reason = message("cluster.why_two_nodes")
        for kind, name, value in _TWO_NODES:
            changed.append(Setting(name, value, kind, "computed", reason, GUIDE))
        values = {setting.name: setting.value for setting in reversed(spread.settings)}
        config = values.get("QUANT_CONFIG")
        theirs = ""
        if config is not None and "QUANT_CONFIG" in spread.own:
            theirs = config
        # the guide pairs bf16kv with auto, and fp8kv with fp8_inc, as the single-node script does
        if "fp8kv" not in theirs and not spread.measured:
            changed.append(Setting("--kv-cache-dtype", "auto", "option", "computed", reason, GUIDE))
        if spread.source and values.get(_REQUANT) == "1":
            # both are in the checkout on each host
            file = f"{spread.source}/{_BF16_CACHE}"
            changed.append(Setting("QUANT_CONFIG", file, "env", "computed", reason, GUIDE))
            prefix = "INC_MEASUREMENT_DUMP_PATH_PREFIX"
            changed.append(Setting(prefix, spread.source, "env", "computed", reason, GUIDE))
        return tuple(changed)

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True if this deployment reads a QUANT_CONFIG, as with -q."""
        return request.inc_fp8 or names_quant_file(request)

    def adjust(self, context: Context, decisions: Decisions) -> None:
        super().adjust(context, decisions)
        if context.request.host is None:
            decisions.option("--host", "127.0.0.1", message("gaudi.host"))

    def experts(self, model: Model, decisions: Decisions) -> None:
        """Turn expert parallelism off for a dense model.

        The parser has it on, accepts any text for it, and reads the degree from VLLM_EP_SIZE; a
        dense model ends with a ValueError (HabanaAI/vllm-fork@016b6bd20:vllm/engine/
        arg_utils.py:447).
        """
        if model.moe is False:
            decisions.option("--enable-expert-parallel", "", message("plan.dense"))

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        """Return the differences from its script.

        That uses all cards without a check, and ends in the engine itself.
        """
        return (*cpu_differences(host, command), message("reference.busy_deepseek"))
