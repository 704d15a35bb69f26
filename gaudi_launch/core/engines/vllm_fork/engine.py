"""The vLLM fork for Gaudi at 1.21, 1.22 and deepseek_r1.

It is the engine of the public start scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.bucket_list import Buckets, captured
from gaudi_launch.core.buckets.engine_buckets import algorithm_of, engine_buckets
from gaudi_launch.core.buckets.engine_env import exported
from gaudi_launch.core.buckets.families import EVERY_CONTEXT, FIXED_LENGTHS, PLAIN_GRID
from gaudi_launch.core.engines.base import given, sent_variables
from gaudi_launch.core.engines.conditions import check_request, settled
from gaudi_launch.core.engines.facts.registry import InstalledLists, installed_lists
from gaudi_launch.core.engines.generation import refuse_first_gaudi
from gaudi_launch.core.engines.parsers import REASONING, REASONING_SWITCH, add_parsers, source_of
from gaudi_launch.core.engines.support import divides_into_stages, ended, support_of
from gaudi_launch.core.engines.vllm_fork import auto as fork_auto
from gaudi_launch.core.engines.vllm_fork import fp8 as fork_fp8
from gaudi_launch.core.engines.vllm_fork import (
    hosts,
    pooling,
    scripts_1_21,
    scripts_1_22,
    scripts_deepseek,
)
from gaudi_launch.core.engines.vllm_fork.calibration import CALIBRATIONS
from gaudi_launch.core.engines.vllm_fork.reference import deliberate_differences
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import (
    BucketQuestion,
    Context,
    Engine,
    InstalledAnswer,
    Limits,
    OverHosts,
    Proposal,
    Spread,
)
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs, engine_args
from gaudi_launch.core.planning.exported import check_exported
from gaudi_launch.core.planning.lengths import BLOCK, LengthRules, ceil_div, limits_within, round_up
from gaudi_launch.core.planning.memory import memory_in
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.passthrough import sent_options, with_own_words
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting, variables_of
from gaudi_launch.core.planning.planner import buckets_of
from gaudi_launch.core.planning.precision import fp8_cache, kernels_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import for_modules
from gaudi_launch.core.planning.speed import step_time_in
from gaudi_launch.core.planning.support_answer import ModelSupport
from gaudi_launch.core.predict.limits import CoverageQuestion

ENTRY = ("-m", "vllm.entrypoints.openai.api_server")
_LONGEST_DEEPSEEK = 32768
# the engine's own default (HabanaAI/vllm-fork@277a33cd9:vllm/config.py max_seq_len_to_capture)
_CAPTURE_LENGTH = 8192

# HabanaAI/vllm-fork@aice/v1.22.0:vllm/worker/hpu_worker.py initialize_cache,
# raise_if_cache_size_invalid; vllm/core/scheduler.py
_MEMORY = MemoryRules(virtual_engines=True)

# the module with the quantisation methods
_PLATFORM = "vllm/platforms/hpu.py"


@dataclass(frozen=True)
class _Version:
    """The differences between the versions.

    Options are the fields of Request that the version's script lacks.
    """

    bucket_family: str
    rules: Callable[[Context, Decisions], None]
    lengths: LengthRules
    without: Mapping[str, str]
    memory: MemoryRules = _MEMORY
    entry_after: str = ""
    can: tuple[str, ...] = ("chat", "vision", "fp8", "awq", "experts")
    # --enable-reasoning with --reasoning-parser; an old and unneeded option in the other versions
    reasoning_switch: bool = False


_LENGTHS = {
    "input_range": "-i",
    "output_range": "-o",
    "max_num_batched_tokens": "-t",
    "reduce": "-r",
}
_SWITCHES = {"scheduler_steps": "-e", "no_zero_padding": "-z", "no_fused_sdpa": "-a"}
_VERSIONS = {
    "1.21": _Version(
        PLAIN_GRID,
        scripts_1_21.rules,
        LengthRules(20480, 32, 2048, inputs=(4, 16384), outputs=(4, 2048), prefill_seqs=None),
        {
            "inc_fp8": "-q",
            "padding_limit": "--padding-limit",
            "max_prefill_seqs": "--max-prefill-seqs",
            "memory_utilization": "--memory-utilization",
            "max_capture_len": "--max-capture-len",
            "quant_config": "--quant-config",
        },
        replace(_MEMORY, blocks_step=True),
    ),
    "1.22": _Version(
        EVERY_CONTEXT,
        scripts_1_22.rules,
        # HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh PREFERED_BATCHED_TOKENS
        LengthRules(16384, 128, 2048),
        {**_LENGTHS, **_SWITCHES, "inc_fp8": "-q"},
        entry_after="--distributed_executor_backend",
        can=("chat", "embed", "vision", "fp8", "awq", "experts", "prefix"),
    ),
    "deepseek_r1": _Version(
        FIXED_LENGTHS,
        scripts_deepseek.rules,
        LengthRules(16384, 64),
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
        reasoning_switch=True,
    ),
}
# the limits that an engine option after -- changes
_LIMITS = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
# the Python package that makes the buckets
_EXTENSION = "vllm_hpu_extension"
# supported by auto tuning although the version's script has no option for it
_AUTO_CAN = {
    "1.21": {"max_prefill_seqs", "memory_utilization", "max_capture_len", "quant_config"},
    "1.22": {*_LENGTHS, *_SWITCHES},
    "deepseek_r1": {
        "reduce",
        "memory_utilization",
        "max_capture_len",
        "modules",
        "scheduler_steps",
    },
}


@dataclass(frozen=True)
class VllmFork(Engine):
    """One version of the fork."""

    version: str
    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    lists: InstalledLists | None = None
    answer: InstalledAnswer | None = None

    @property
    def identity(self) -> EngineIdentity:
        word = f"vllm-fork@{self.version}"
        if self.version == "deepseek_r1":
            word = self.version
        table = f"vllm-fork-{self.version}"
        known = (self.python, self.facts, word)
        return EngineIdentity("vllm-fork", self.version, *known, options=table, variables=table)

    def check_features(self, request: Request, model: Model) -> tuple[Message, ...]:
        return check_request(self.identity, request, model)

    def settled(self, context: Context, proposed: Sequence[Setting]) -> Proposal:
        return settled(self.identity, context, proposed)

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return a model's support by this version's list, or the installed engine's."""
        return support_of(
            model,
            "vllm-fork",
            self.version,
            installed=self.lists,
            quantization=args.last("--quantization") or "",
            variables=variables,
        )

    @property
    def ended(self) -> str | None:
        return ended(self.identity.label)

    @property
    def can(self) -> tuple[str, ...]:
        return _VERSIONS[self.version].can

    def caches_prefixes(self, request: Request, model: Model) -> bool:
        """Return True if the user turned it on: the start scripts leave it off."""
        return request.args.has(fork_auto.PREFIX_CACHING)

    def prefix_arguments(self, *, on: bool) -> tuple[str, ...] | None:
        """Return the switch of a version that supports it."""
        if "prefix" not in self.can:
            return None
        if not on:
            return ()
        return (fork_auto.PREFIX_CACHING,)

    @property
    def lacks(self) -> tuple[str, ...]:
        able = _AUTO_CAN[self.version]
        return tuple(
            flag for name, flag in _VERSIONS[self.version].without.items() if name not in able
        )

    def cards(self, request: Request) -> int | None:
        """Return the number of cards if the user gives none: deepseek_r1 needs eight."""
        if request.cards is None and request.modules is None and self.version == "deepseek_r1":
            return 8
        if request.cards is None and request.tuning == "reference":
            return 1  # the scripts count by -n alone, and refuse a list of another length
        return request.cards or request.chosen_cards

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return `_lengths`; a pooling model takes as many texts per step as requests."""
        found = self._lengths(request, model)
        several = request.tuning == "auto" and request.max_prefill_seqs is None
        if several and pooling.pools(model, request.args):
            return replace(found, max_num_prefill_seqs=found.max_num_seqs)
        return found

    def _lengths(self, request: Request, model: Model) -> Limits:
        """Return lengths from the request and the version's rules, or its script's."""
        if request.tuning == "reference":
            after = with_own_words(request, self.identity, self.lacks)
            given = (name for name in _LIMITS if after.args.has(f"--{name.replace('_', '-')}"))
            sent = {name: getattr(after, name) for name in given}
            return replace(self._of_script(request), **sent)
        bounded = self.version == "deepseek_r1" and not request.force
        if bounded and request.max_model_len is None:
            longest = min(model.max_position_embeddings or _LONGEST_DEEPSEEK, _LONGEST_DEEPSEEK)
            model = replace(model, max_position_embeddings=longest)
        rules = replace(
            _VERSIONS[self.version].lengths,
            splits=request.args.has("--enable-chunked-prefill"),
            answers=not pooling.pools(model, request.args),
        )
        limits = limits_within(rules, request, model)
        length = limits.max_model_len
        if bounded and length > _LONGEST_DEEPSEEK:
            # start_vllm.sh: "maximal value for single node: 32768"
            raise LaunchError(
                "plan.deepseek_too_long", ExitCode.USAGE, found=length, longest=_LONGEST_DEEPSEEK
            )
        return limits

    def _of_script(self, request: Request) -> Limits:
        """Return the lengths of the version's start script, which checks none of them."""
        usual = _VERSIONS[self.version].lengths
        length = request.max_model_len or usual.length
        tokens = length
        if self.version == "1.21":
            tokens = request.max_num_batched_tokens or usual.length
        if self.version == "1.22":
            length = round_up(length, BLOCK)
            tokens = max(length, usual.step)
        input_min, input_max = request.input_range or usual.inputs or (1, length)
        output_min, output_max = request.output_range or usual.outputs or (1, length)
        # utils.sh set_bucketing: the maximum of a range given by one number
        if "input" in request.open_ranges:
            input_max = 1024
        if "output" in request.open_ranges:
            output_max = 2048
        seqs = request.max_num_seqs or usual.seqs
        return Limits(
            input_min=input_min,
            input_max=input_max,
            output_min=output_min,
            output_max=output_max,
            max_model_len=length,
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_num_prefill_seqs=request.max_prefill_seqs or usual.prefill_seqs or seqs,
        )

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for options that this version, or its script, does not have."""
        refuse_first_gaudi(product_of(host))
        without = dict(_VERSIONS[self.version].without)
        advice = "plan.other_tuning"
        if request.tuning == "auto":
            # auto tuning is not advice where it is already active
            advice = "plan.other_engine"
            without = {name: each for name, each in without.items() if each in self.lacks}
        for flag in given(request, without.items()):
            raise LaunchError(
                "plan.no_such_option",
                ExitCode.USAGE,
                flag=flag,
                engine=self.identity.label,
                instead=text(advice),
            )
        if self.version == "deepseek_r1":
            self._refuse_deepseek(request, host, model)

    def _refuse_deepseek(self, request: Request, host: Host, model: Model) -> None:
        if request.tuning == "auto" and pooling.pools(model, request.args) and not request.force:
            task = pooling.fork_task(model, request.args)
            raise LaunchError("plan.fork_task", ExitCode.MODEL, model=model.name, task=task)
        known = [card.product for card in host.cards if card.product]
        if known and not any(name.startswith(("HL-225", "HL-288")) for name in known):
            raise LaunchError("plan.deepseek_platform", ExitCode.MACHINE, found=known[0])
        forced = request.tuning == "auto" and request.force
        if 0 < len(host.modules) < 8 and not forced:
            raise LaunchError("plan.deepseek_machine", ExitCode.MACHINE, found=len(host.modules))
        cards = self.cards(request) or len(request.modules or ()) or 8
        if cards != 8 and not forced:
            allowed = for_modules(request, "-n 8")
            raise LaunchError("plan.deepseek_cards", ExitCode.USAGE, found=cards, allowed=allowed)

    @property
    def needs_gaudi2_range(self) -> bool:
        """Return True for 1.21 and deepseek_r1, which load fp8 codes as they are.

        Their manuals convert with convert_for_g2.py.
        HabanaAI/vllm-fork@277a33cd9:scripts/docs/vllm推理手册.md:491-507. 1.22 rescales at load.
        """
        return self.version in ("1.21", "deepseek_r1")

    @property
    def calibration(self) -> Calibration:
        return CALIBRATIONS[self.version]

    @property
    def profile_key(self) -> str:
        return self.version

    @property
    def over_hosts(self) -> OverHosts:
        if self.version == "deepseek_r1":
            return OverHosts(tensor_guide=hosts.GUIDE)
        return OverHosts(old_ray=self.version == "1.21")

    def runs_stages(self, model: Model) -> bool:
        """Return True for 1.21 and 1.22, whose README_GAUDI.md describes pipeline stages.

        HabanaAI/vllm-fork@v0.7.2+Gaudi-1.21.2 and @v0.9.0.1+Gaudi-1.22.0:README_GAUDI.md: "single
        or multi-node multi-HPU". The guide of deepseek_r1 divides over all cards by tensors only.
        """
        if self.version == "deepseek_r1" or not model.architecture:
            return False
        return divides_into_stages(self.identity.name, self.version, model.architecture)

    def spread(self, spread: Spread) -> tuple[Setting, ...]:
        if self.version != "deepseek_r1":
            return ()
        return hosts.two_nodes(spread)

    def pools(self, model: Model, args: EngineArgs) -> bool:
        return pooling.pools(model, args)

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        return _VERSIONS[self.version].memory

    def silent_kv_dtype(self, model: Model, variables: Mapping[str, str]) -> str:
        """Return the KV cache type that is used without an option.

        1.22 pairs INC weights with an fp8 cache unless the file's blocklist names it (its
        vllm/config.py).
        """
        if self.version == "1.22" and variables.get("QUANT_CONFIG"):
            return fp8_cache(model, self.calibration)
        return "auto"

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True if this deployment reads a QUANT_CONFIG."""
        return fork_fp8.needs_quant_file(request, model, self.version)

    def propose(self, context: Context) -> Proposal:
        """Return every variable and option.

        They are the scripts' rules, and in auto tuning our differences from them.
        """
        request = context.request
        if request.tuning == "auto":
            context = fork_fp8.with_fp8(context, self.version)
        else:
            # the script does not read what follows --
            context = replace(context, limits=self._of_script(request))
        decisions = Decisions(request.environment)
        _VERSIONS[self.version].rules(context, decisions)
        if request.tuning == "auto":
            fork_auto.check(context, self.version)
            decisions.warnings += check_exported(
                request.environment, self.identity.label, decisions.settings()
            )
            fork_auto.adjust(context, decisions, self.version, dict(self.facts))
            fork_auto.follow_profile(context, decisions, self.version)
            fork_fp8.quantise(context, decisions, self.version)
            if pooling.pools(context.model, request.args):
                pooling.add_options(context, decisions)
            else:
                self._add_parsers(context, decisions)
            fork_fp8.warn_of_range(context, decisions, needs_range=self.needs_gaudi2_range)
            self._more_options(context, decisions)
            self._plan_buckets(context, decisions)
            if pooling.pools(context.model, request.args):
                pooling.leave_out_decode(decisions)
        elif self.version == "1.22" and not fork_auto.knows_limit(self.facts):
            # HabanaAI/vllm-hpu-extension@f5f9ecb:vllm_hpu_extension/bucketing/common.py: int()
            limit = request.padding_limit or "0.25"
            if not limit.isdigit():
                decisions.warn("plan.limit_reference", found=limit, engine=self.identity.label)
        decisions.option_of("--served-name", "--served-model-name", request.served_name or None)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _add_parsers(self, context: Context, decisions: Decisions) -> None:
        """Add the profile's parsers.

        Remove the one that the script of deepseek_r1 gives every model.
        """
        table = option_table(self.identity.options)
        switch = _VERSIONS[self.version].reasoning_switch
        add_parsers(context, decisions, table, reasoning_switch=switch, fork=self.version)
        for name in (REASONING_SWITCH, REASONING):
            if source_of(decisions, name) == "computed":
                decisions.drop("option", name)

    def _plan_buckets(self, context: Context, decisions: Decisions) -> None:
        """Plan the buckets, last of all.

        All other settings decide how many blocks the cache has, and how they are numbered.
        """

        def blocks() -> int | None:
            return memory_in(context, decisions.settings(), self).num_blocks

        def graphs() -> int:
            found = buckets_of(self, decisions.settings(), context, [], blocks())
            if found is None:
                return 0
            return found[1].graphs

        question = self._question(decisions.settings(), context, blocks())
        fork_auto.plan_buckets(context, decisions, question, step_time_in(context, self), graphs)

    def chooses_prompts(self, context: Context) -> bool:
        return fork_auto.chooses_prompts(context)

    def _more_options(self, context: Context, decisions: Decisions) -> None:
        """Add long options of another version's script that this engine supports."""
        request, limits = context.request, context.limits
        share = "--gpu-memory-utilization"
        if self.version == "deepseek_r1":
            share = "--gpu_memory_utilization"
        for flag, option, value in (
            ("--max-prefill-seqs", "--max-num-prefill-seqs", request.max_prefill_seqs),
            ("--max-capture-len", "--max-seq-len-to-capture", request.max_capture_len),
            ("-e", "--num-scheduler-steps", request.scheduler_steps),
            ("--memory-utilization", share, request.memory_utilization),
        ):
            decisions.option_of(flag, option, value)
        kernels = kernels_of(context.model.quantization)
        if kernels is not None and decisions.get("option", "--quantization") is None:
            reason = message("gaudi.hpu_kernels", found=context.model.quantization)
            decisions.option("--quantization", kernels, reason, origin="vllm/platforms/hpu.py")
        for flag, variable, asked in (
            ("-z", "VLLM_ZERO_PADDING", request.no_zero_padding),
            ("-a", "VLLM_PROMPT_USE_FUSEDSDPA", request.no_fused_sdpa),
        ):
            decisions.switch_of(flag, variable, "false", given=asked)
        if self.version == "1.22" and (request.input_range or request.output_range):
            self._ranges_1_22(limits, decisions)

    def _ranges_1_22(self, limits: Limits, decisions: Decisions) -> None:
        """Set the ranges of 1.22 with -i and -o by the 1.21 script's arithmetic."""
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

    @property
    def bucket_family(self) -> str:
        return _VERSIONS[self.version].bucket_family

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        """Return None for pooling models, whose warm-up has prompts only."""
        if pooling.pools(context.model, context.request.args):
            return None
        return self._question(settings, context, num_blocks)

    def _question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion:
        """Return the coverage for the warm-up planner.

        The padding limit is the user's where one is given.
        """
        limited = fork_auto.knows_limit(self.facts) and context.request.padding_limit is None
        limits = fork_auto.planned_limits(context, settings, num_blocks)
        return CoverageQuestion(self.bucket_family, limits, limited, _EXTENSION)

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """Return the grid that these settings warm up, by the engine's arithmetic.

        Return None when warm-up needs no list.
        """
        asked = self.bucket_question(settings, context, num_blocks)
        theirs = mapped(lambda answer: answer(asked), self.answer)
        if theirs is not None:
            return theirs[0], self.warmed(theirs[1], settings, context)
        found = engine_buckets(asked.family, asked.algorithm, asked.environment, asked.arguments)
        return asked.algorithm, self.warmed(found, settings, context)

    def asking(self, answer: InstalledAnswer) -> Engine:
        if "extension_kind" not in self.facts:
            return self
        return replace(self, answer=answer)

    def warmed(self, buckets: Buckets, settings: Sequence[Setting], context: Context) -> Buckets:
        """Return the part of the list that is compiled.

        1.21 without its first pass compiles only what it captures (the script's -r, or exported); a
        pooling model has no decode.
        """
        if pooling.pools(context.model, context.request.args):
            buckets = Buckets(buckets.prompt, [])
        args = context.request.args
        values = {setting.name: setting.value or "" for setting in settings}
        values = {**context.request.environment, **values}
        skips = values.get(fork_auto.SKIP_COMPILE, "").lower() == "true"
        if self.version != "1.21" or not skips:
            return buckets
        if args.has("--enforce-eager"):
            return captured(buckets, 0)
        name = "--max-seq-len-to-capture"
        longest = args.last(name) or values.get(name, "")
        if not longest.isdigit():
            return captured(buckets, _CAPTURE_LENGTH)
        return captured(buckets, int(longest))

    def bucket_question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> BucketQuestion:
        """Return the inputs of the grid, for our arithmetic or the engine's."""
        limits = context.limits
        env = {**exported(context.request.environment), **variables_of(settings)}
        family = self.bucket_family
        # the reference tuning assumes the extension with the limit (1.22, deepseek_r1), for which
        # the scripts are made, unless the installed one lacks it; the other sends what is known
        scripts = context.request.tuning == "reference"
        if scripts:
            limited = self.facts.get("bucket_limit") != "false"
        else:
            limited = fork_auto.knows_limit(self.facts)
        algorithm = algorithm_of(family, env, with_limit=limited)
        prefill = next((s.value for s in settings if s.name == "--max-num-prefill-seqs"), None)
        most = ceil_div(limits.max_model_len, limits.block_size) * limits.max_num_seqs
        # linear decode ranges begin at one step of blocks, also where they are not compiled
        most = max(most, limits.block_size)
        arguments: dict[str, Any] = {
            "max_num_seqs": limits.max_num_seqs,
            "max_num_prefill_seqs": int(prefill) if prefill else limits.max_num_prefill_seqs,
            "block_size": limits.block_size,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_model_len": limits.max_model_len,
            "num_hpu_blocks": num_blocks or most,
            "num_blocks": num_blocks or most,
            "prefix_caching": context.request.args.has(fork_auto.PREFIX_CACHING),
        }
        return BucketQuestion(family, _EXTENSION, algorithm, env, arguments)

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        """Return the deliberate differences from this version's start script."""
        return deliberate_differences(request, host, placement, command, self.version)

    @property
    def config_file(self) -> Literal["breaks"]:
        """Return "breaks": the file's options come between an option and its value.

        The option is our first one.
        Source: HabanaAI/vllm-fork@17a7946f4:vllm/utils.py, _pull_args_from_config; 277a33cd9 and
        016b6bd20 alike.
        """
        return "breaks"

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return argv from the interpreter on, with the user's arguments last.

        In reference tuning they are where the script has them.
        """
        reference = context.request.tuning == "reference"
        args = engine_args(
            table=option_table(self.identity.options),
            head=(self.python or "python3", *ENTRY),
            ours=sent_options(settings),
            user=context.request.extra,
            file=context.request.file_words,
            place=_VERSIONS[self.version].entry_after if reference else "",
        )
        return Command(
            argv=args.to_argv(),
            env=sent_variables(settings),
            cpus=context.placement.cpus,
            memory_node=context.placement.memory_node,
            user=args.user_words,
        )


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Engine:
    """Return the fork of this name: ``vllm-fork@1.21``, ``deepseek_r1``."""
    return VllmFork(name.rpartition("@")[2], python, facts, installed_lists(facts, _PLATFORM))
