"""The vLLM fork for Gaudi at 1.21, 1.22 and deepseek_r1: the engine of the public start scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.engines import fork_auto, fork_fp8, scripts_1_21, scripts_1_22, scripts_deepseek
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.records import Host
from gaudi_launch.messages import message
from gaudi_launch.models.records import Model
from gaudi_launch.planning.engine import Context, Limits, Proposal
from gaudi_launch.planning.exported import check_exported
from gaudi_launch.planning.lengths import BLOCK, ceil_div, round_down, round_up
from gaudi_launch.planning.memory import memory_in
from gaudi_launch.planning.own_words import has_word
from gaudi_launch.planning.plan import Command, EngineIdentity, Setting
from gaudi_launch.planning.planner import buckets_of
from gaudi_launch.planning.precision import kernels_of
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.settings import Decisions
from gaudi_launch.warmup.buckets import Buckets
from gaudi_launch.warmup.engine_buckets import FORK_1_21, FORK_1_22, FORK_DEEPSEEK, algorithm_of, engine_buckets
from gaudi_launch.warmup.engine_env import exported
from gaudi_launch.warmup.limits import Question

ENTRY = ("-m", "vllm.entrypoints.openai.api_server")
# HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh PREFERED_BATCHED_TOKENS
_LEAST_BATCHED_TOKENS_1_22 = 2048
_LONGEST_DEEPSEEK = 32768


@dataclass(frozen=True)
class _Version:
    """What differs between the versions. Options are the fields of Request that the version's script lacks."""

    buckets_engine: str
    rules: Callable[[Context, Decisions], None]
    input_range: tuple[int, int]
    max_model_len: int
    max_num_seqs: int
    without: Mapping[str, str]
    entry_after: str = ""
    can: tuple[str, ...] = ("chat", "vision", "fp8", "awq", "experts")


_LENGTHS = {"input_range": "-i", "output_range": "-o", "max_num_batched_tokens": "-t", "reduce": "-r"}
_SWITCHES = {"scheduler_steps": "-e", "no_zero_padding": "-z", "no_fused_sdpa": "-a"}
_VERSIONS = {
    "1.21": _Version(
        FORK_1_21,
        scripts_1_21.rules,
        (4, 16384),
        20480,
        32,
        {
            "inc_fp8": "-q",
            "padding_limit": "--padding-limit",
            "max_prefill_seqs": "--max-prefill-seqs",
            "memory_utilization": "--memory-utilization",
            "max_capture_len": "--max-capture-len",
            "quant_config": "--quant-config",
        },
    ),
    "1.22": _Version(
        FORK_1_22,
        scripts_1_22.rules,
        (1, 16384),
        16384,
        128,
        {**_LENGTHS, **_SWITCHES, "inc_fp8": "-q"},
        "--distributed_executor_backend",
        ("chat", "embed", "vision", "fp8", "awq", "experts", "prefix"),
    ),
    "deepseek_r1": _Version(
        FORK_DEEPSEEK,
        scripts_deepseek.rules,
        (1, 16384),
        16384,
        64,
        {
            **_LENGTHS,
            **_SWITCHES,
            "dtype": "-d",
            "profile": "-f",
            "modules": "-m",
            "memory_utilization": "--memory-utilization",
            "max_capture_len": "--max-capture-len",
        },
        can=("chat", "fp8", "experts"),
    ),
}
VERSIONS = tuple(_VERSIONS)
# what auto tuning can do although the version's script has no option for it
_AUTO_CAN = {
    "1.21": {"max_prefill_seqs", "memory_utilization", "max_capture_len", "quant_config"},
    "1.22": {*_LENGTHS, *_SWITCHES},
    "deepseek_r1": {"reduce", "memory_utilization", "max_capture_len", "modules", "scheduler_steps"},
}


@dataclass(frozen=True)
class VllmFork:
    """One version of the fork, as engine of a plan (planning.engine.Engine)."""

    version: str
    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> EngineIdentity:
        word = self.version if self.version == "deepseek_r1" else f"vllm-fork@{self.version}"
        return EngineIdentity("vllm-fork", self.version, self.python, self.facts, word)

    @property
    def needs_cards(self) -> bool:
        return True

    @property
    def can(self) -> tuple[str, ...]:
        return _VERSIONS[self.version].can

    @property
    def lacks(self) -> tuple[str, ...]:
        able = _AUTO_CAN[self.version]
        return tuple(flag for name, flag in _VERSIONS[self.version].without.items() if name not in able)

    def cards(self, request: Request) -> int | None:
        """How many cards when the user does not say: deepseek_r1 is made for eight."""
        if request.cards is None and request.modules is None and self.version == "deepseek_r1":
            return 8
        if request.cards is None and request.tuning == "reference":
            return 1  # the scripts count by -n alone, and refuse a list of another length
        return request.cards

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Lengths from the request and the version's script; auto tuning keeps them within the model."""
        version = _VERSIONS[self.version]
        auto = request.tuning == "auto"
        length = request.max_model_len or version.max_model_len
        if auto and request.max_model_len is None and model.max_position_embeddings:
            # a model of 4096 positions must not fail on a default of 20480
            length = min(length, max(BLOCK, round_down(model.max_position_embeddings, BLOCK)))
        if self.version == "1.21":
            return self._limits_1_21(request, length, auto)
        if self.version == "1.22" or auto:
            length = round_up(length, BLOCK)
        if self.version == "deepseek_r1" and length > _LONGEST_DEEPSEEK and auto and not request.force:
            # start_vllm.sh: "maximal value for single node: 32768"
            raise LaunchError("plan.deepseek_too_long", ExitCode.USAGE, found=length, longest=_LONGEST_DEEPSEEK)
        tokens = request.max_num_batched_tokens or length
        if self.version == "1.22":
            tokens = round_up(max(tokens, _LEAST_BATCHED_TOKENS_1_22), BLOCK)
        least, most = request.input_range or (1, length)
        return Limits(
            input_min=least,
            input_max=min(most, length) if auto else most,
            output_min=(request.output_range or (1, length))[0],
            output_max=(request.output_range or (1, length))[1],
            max_model_len=length,
            max_num_batched_tokens=tokens,
            max_num_seqs=request.max_num_seqs or version.max_num_seqs,
            max_num_prefill_seqs=request.max_prefill_seqs or 1,
        )

    def _limits_1_21(self, request: Request, length: int, auto: bool) -> Limits:
        output_min, output_max = request.output_range or (4, 2048)
        input_min, input_max = request.input_range or (4, 16384)
        tokens = request.max_num_batched_tokens or (20480 if not auto else max(length, 2048))
        if auto:
            input_max = min(input_max, length - 1) if request.input_range is None else input_max
            if input_max >= length:
                raise LaunchError("plan.input_over_length", ExitCode.USAGE, input=input_max, length=length)
            if input_max > tokens:
                # V0 cannot schedule a prompt longer than one batch (vllm/core/scheduler.py)
                raise LaunchError("plan.input_over_tokens", ExitCode.USAGE, input=input_max, tokens=tokens)
            output_max = min(output_max, length)
        else:
            # utils.sh set_bucketing: the top of a range given by one number
            input_max = 1024 if "input" in request.open_ranges else input_max
            output_max = 2048 if "output" in request.open_ranges else output_max
        seqs = request.max_num_seqs or 32
        return Limits(
            input_min=input_min,
            input_max=input_max,
            output_min=output_min,
            output_max=output_max,
            max_model_len=length,
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_num_prefill_seqs=request.max_prefill_seqs or seqs,
        )

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for options that this version, or its script, does not have."""
        allowed = _AUTO_CAN[self.version] if request.tuning == "auto" else set()
        for name, flag in _VERSIONS[self.version].without.items():
            if name not in allowed and getattr(request, name) not in (None, False):
                raise LaunchError("plan.no_such_option", ExitCode.USAGE, flag=flag, engine=self.identity.label)
        if self.version != "deepseek_r1":
            return
        known = [card.product for card in host.cards if card.product]
        if known and not any(name.startswith(("HL-225", "HL-288")) for name in known):
            raise LaunchError("plan.deepseek_platform", ExitCode.MACHINE, found=known[0])
        if self.cards(request) not in (None, 8) and not (request.tuning == "auto" and request.force):
            raise LaunchError("plan.deepseek_cards", ExitCode.USAGE, found=self.cards(request))

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Does this deployment read a QUANT_CONFIG?"""
        return fork_fp8.needs_quant_file(request, model, self.version)

    def propose(self, context: Context) -> Proposal:
        """Every variable and option: the scripts' rules, and in auto tuning our differences from them."""
        request = context.request
        if request.tuning == "auto":
            context = fork_fp8.with_fp8(context, self.version)
        decisions = Decisions(request.environment)
        _VERSIONS[self.version].rules(context, decisions)
        if request.tuning == "auto":
            fork_auto.check(context, self.version)
            decisions.warnings += check_exported(request.environment, self.identity.label, decisions.settings())
            fork_auto.adjust(context, decisions, self.version, dict(self.facts))
            fork_auto.follow_profile(context, decisions, self.version)
            fork_fp8.quantise(context, decisions, self.version)
            self._more_options(context, decisions)
            self._plan_buckets(context, decisions)
        if request.served_name:
            reason = message("plan.flag", flag="--served-name")
            decisions.option("--served-model-name", request.served_name, reason, source="flag")
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _plan_buckets(self, context: Context, decisions: Decisions) -> None:
        """Last of all, as everything before decides how many blocks the cache has, and how they are numbered."""

        def blocks() -> int | None:
            return memory_in(context, decisions.settings(), self.identity).num_blocks

        def graphs() -> int:
            found = buckets_of(self, decisions.settings(), context, decisions.warnings, blocks())
            return found[1].graphs if found is not None else 0

        question = self.question(decisions.settings(), context, blocks())
        fork_auto.plan_buckets(context, decisions, question, graphs)

    def _more_options(self, context: Context, decisions: Decisions) -> None:
        """Long options that another version's script has and this version's engine understands as well."""
        request, limits = context.request, context.limits
        flags = (
            ("--max-num-prefill-seqs", request.max_prefill_seqs, "--max-prefill-seqs"),
            ("--max-seq-len-to-capture", request.max_capture_len, "--max-capture-len"),
            ("--num-scheduler-steps", request.scheduler_steps, "-e"),
        )
        for option, value, flag in flags:
            if value is not None:
                reason = message("plan.flag", flag=flag)
                decisions.option(option, str(value), reason, source="flag")
        if request.memory_utilization is not None:
            name = "--gpu_memory_utilization" if self.version == "deepseek_r1" else "--gpu-memory-utilization"
            reason = message("plan.flag", flag="--memory-utilization")
            decisions.option(name, request.memory_utilization, reason, source="flag")
        kernels = kernels_of(context.model.quantization)
        if kernels is not None and decisions.get("option", "--quantization") is None:
            reason = message("gaudi.hpu_kernels", found=context.model.quantization)
            decisions.option("--quantization", kernels, reason, origin="vllm/platforms/hpu.py")
        for asked, variable, flag in (
            (request.no_zero_padding, "VLLM_ZERO_PADDING", "-z"),
            (request.no_fused_sdpa, "VLLM_PROMPT_USE_FUSEDSDPA", "-a"),
        ):
            if asked:
                decisions.env(variable, "false", message("plan.flag", flag=flag), source="flag")
        if self.version == "1.22" and (request.input_range or request.output_range):
            self._ranges_1_22(limits, decisions)

    def _ranges_1_22(self, limits: Limits, decisions: Decisions) -> None:
        """1.22 with -i and -o: the 1.21 script's arithmetic for the top buckets."""
        longest = min(round_up(limits.input_max, BLOCK), limits.max_model_len)
        least = min(round_up(limits.input_min, BLOCK), longest)
        batches = round_up(limits.max_num_seqs, 2)
        total = min(limits.input_max + limits.output_max, limits.max_model_len)
        blocks = round_up((ceil_div(total, BLOCK) + 1) * batches, BLOCK)
        for name, value in (
            ("VLLM_PROMPT_SEQ_BUCKET_MIN", least),
            ("VLLM_PROMPT_SEQ_BUCKET_MAX", longest),
            ("VLLM_DECODE_BLOCK_BUCKET_MAX", blocks),
        ):
            decisions.env(name, str(value), message("plan.flag", flag="-i -o"), source="computed")

    def question(self, settings: Sequence[Setting], context: Context, num_blocks: int | None) -> Question:
        """What the warm-up planner is to cover; the padding limit is the user's where one is given."""
        limited = fork_auto.knows_limit(self.facts) and context.request.padding_limit is None
        limits = fork_auto.planned_limits(context, settings, num_blocks)
        return Question(_VERSIONS[self.version].buckets_engine, limits, limited)

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """The grid that these settings warm up; the engine's own arithmetic. None when warm-up needs no list."""
        engine, algorithm, env, arguments = self.bucket_question(settings, context, num_blocks)
        return algorithm, engine_buckets(engine, algorithm, env, arguments)

    def bucket_question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, str, dict[str, str], dict[str, Any]]:
        """What decides the grid, for our arithmetic or the engine's own: its key, the algorithm, variables and
        arguments (as `engine_buckets` takes them)."""
        limits = context.limits
        env = {s.name: s.value or "" for s in settings if s.kind == "env"}
        env = {**exported(context.request.environment), **env}
        engine = _VERSIONS[self.version].buckets_engine
        # the default of the script's own documents is the extension with the limit (1.22, deepseek_r1)
        # the scripts of today are made for an extension with the limit; ours is only sent what is known
        scripts = context.request.tuning == "reference"
        limited = self.facts.get("bucket_limit") != "false" if scripts else fork_auto.knows_limit(self.facts)
        algorithm = algorithm_of(engine, env, with_limit=limited)
        prefill = next((s.value for s in settings if s.name == "--max-num-prefill-seqs"), None)
        most = ceil_div(limits.max_model_len, limits.block_size) * limits.max_num_seqs
        arguments: dict[str, Any] = {
            "max_num_seqs": limits.max_num_seqs,
            "max_num_prefill_seqs": int(prefill) if prefill else limits.max_num_prefill_seqs,
            "block_size": limits.block_size,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_model_len": limits.max_model_len,
            "num_hpu_blocks": num_blocks or most,
            "num_blocks": num_blocks or most,
            "prefix_caching": has_word(context.request.extra, fork_auto.PREFIX_CACHING),
        }
        return engine, algorithm, env, arguments

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """argv from the interpreter on, with the user's own words where the version's script has them."""
        argv: list[str] = [self.python or "python3", *ENTRY]
        extra = list(context.request.extra)
        after = _VERSIONS[self.version].entry_after
        for setting in settings:
            if setting.kind != "option" or not setting.sent:
                continue
            argv.append(setting.name)
            if setting.value is not None:
                argv.append(setting.value)
            if extra and setting.name == after:
                argv += extra
                extra = []
        return Command(
            argv=(*argv, *extra),
            env={s.name: s.value or "" for s in settings if s.kind == "env" and s.sent},
            cpus=context.placement.cpus,
            memory_node=context.placement.memory_node,
        )
