"""The vLLM fork for Gaudi: the common part of its releases.

It is the engine of the public start scripts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.engine_buckets import algorithm_of, engine_buckets
from gaudi_launch.core.buckets.engine_env import exported
from gaudi_launch.core.engines.base import API_SERVER, given, sent_variables
from gaudi_launch.core.engines.facts.registry import InstalledLists, installed_lists
from gaudi_launch.core.engines.generation import refuse_first_gaudi
from gaudi_launch.core.engines.known_versions import divides_into_stages
from gaudi_launch.core.engines.launch_conditions import check_request, settled
from gaudi_launch.core.engines.model_rules import follow_profile
from gaudi_launch.core.engines.parsers import REASONING, REASONING_SWITCH, add_parsers, source_of
from gaudi_launch.core.engines.support import ended, support_of
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
)
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs, engine_args
from gaudi_launch.core.planning.exported import check_exported
from gaudi_launch.core.planning.lengths import LengthRules, ceil_div, limits_within
from gaudi_launch.core.planning.memory import memory_in
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.passthrough import sent_options, with_own_words
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import (
    Command,
    EngineIdentity,
    Setting,
    Source,
    variables_of,
)
from gaudi_launch.core.planning.planner import buckets_of
from gaudi_launch.core.planning.precision import kernels_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import step_time_in
from gaudi_launch.core.planning.support_answer import ModelSupport
from gaudi_launch.core.predict.limits import CoverageQuestion
from gaudi_launch.extensions.vllm_fork import auto as fork_auto
from gaudi_launch.extensions.vllm_fork import fp8 as fork_fp8
from gaudi_launch.extensions.vllm_fork import pooling
from gaudi_launch.extensions.vllm_fork.reference import deliberate_differences

# HabanaAI/vllm-fork@aice/v1.22.0:vllm/worker/hpu_worker.py initialize_cache,
# raise_if_cache_size_invalid; vllm/core/scheduler.py
MEMORY = MemoryRules(virtual_engines=True)

# the module with the quantisation methods
_PLATFORM = "vllm/platforms/hpu.py"


# options of the script of 1.21 that others lack, by field of Request
LENGTHS = {
    "input_range": "-i",
    "output_range": "-o",
    "max_num_batched_tokens": "-t",
    "reduce": "-r",
}
SWITCHES = {"scheduler_steps": "-e", "no_zero_padding": "-z", "no_fused_sdpa": "-a"}
# the limits that an engine option after -- changes
_LIMITS = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
# the Python package that makes the buckets
_EXTENSION = "vllm_hpu_extension"


@dataclass(frozen=True)
class VllmFork(Engine):
    """A release of the fork; each has a class with its differences.

    ``version`` is its name in profiles and facts, ``label`` that of users. ``without`` are the
    options that its script lacks, by field of Request; those of ``auto_has`` are supported by auto
    tuning nevertheless. ``unread`` are variables that its script exports and that no code reads
    (grep over vllm/ and the extension of its branch). ``entry_after``: the user's arguments are
    after this option of its script.
    """

    version: ClassVar[str]
    label: ClassVar[str]
    bucket_family: ClassVar[str]
    lengths: ClassVar[LengthRules]
    without: ClassVar[Mapping[str, str]]
    auto_has: ClassVar[frozenset[str]]
    can: ClassVar[tuple[str, ...]]
    calibration: ClassVar[Calibration]
    over_hosts: ClassVar[OverHosts] = OverHosts()
    # the file's options come between our first option and its value: HabanaAI/vllm-fork@17a7946f4:
    # vllm/utils.py, _pull_args_from_config; 277a33cd9 and 016b6bd20 alike
    config_file: ClassVar[Literal["breaks"]] = "breaks"
    memory: ClassVar[MemoryRules] = MEMORY
    unread: ClassVar[tuple[str, ...]] = ()
    entry_after: ClassVar[str] = ""
    # --enable-reasoning with --reasoning-parser; an old and unneeded option in the others
    reasoning_switch: ClassVar[bool] = False
    # the spelling of its script
    memory_share: ClassVar[str] = "--gpu-memory-utilization"
    # the KV cache type of a QUANT_CONFIG is our setting, or the engine reads it from the file
    cache_type_source: ClassVar[Source] = "computed"
    # only settings under its own name apply of a profile
    profile_named_only: ClassVar[bool] = False

    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    lists: InstalledLists | None = None
    answer: InstalledAnswer | None = None

    @classmethod
    def create(cls, name: str, python: str | None, facts: Mapping[str, str]) -> VllmFork:
        """Return the engine of an interpreter with these facts."""
        return cls(python, facts, installed_lists(facts, _PLATFORM))

    @abstractmethod
    def script(self, context: Context, decisions: Decisions) -> None:
        """Propose every variable and option of the start script."""

    @property
    def identity(self) -> EngineIdentity:
        table = f"vllm-fork-{self.version}"
        known = (self.python, self.facts, self.label)
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
        return ended(self.label)

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
        return tuple(flag for name, flag in self.without.items() if name not in self.auto_has)

    def cards(self, request: Request) -> int | None:
        """Return the number of cards, that of the script for reference tuning."""
        if request.cards is None and request.tuning == "reference":
            return 1  # the scripts count by -n alone, and refuse a list of another length
        return request.cards or request.chosen_cards

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return `within`; a pooling model takes as many texts per step as requests."""
        found = self.within(request, model)
        several = request.tuning == "auto" and request.max_prefill_seqs is None
        if several and pooling.pools(model, request.args):
            return replace(found, max_num_prefill_seqs=found.max_num_seqs)
        return found

    def within(self, request: Request, model: Model) -> Limits:
        """Return lengths from the request and the version's rules, or its script's."""
        if request.tuning == "reference":
            after = with_own_words(request, self.identity, self.lacks)
            given = (name for name in _LIMITS if after.args.has(f"--{name.replace('_', '-')}"))
            sent = {name: getattr(after, name) for name in given}
            return replace(self._of_script(request), **sent)
        rules = replace(
            self.lengths,
            splits=request.args.has("--enable-chunked-prefill"),
            answers=not pooling.pools(model, request.args),
        )
        return limits_within(rules, request, model)

    def script_lengths(self, request: Request) -> tuple[int, int]:
        """Return the start script's maximum length and tokens of a step."""
        length = request.max_model_len or self.lengths.length
        return length, length

    def _of_script(self, request: Request) -> Limits:
        """Return the lengths of the version's start script, which checks none of them."""
        usual = self.lengths
        length, tokens = self.script_lengths(request)
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
        without = dict(self.without)
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

    @property
    def profile_key(self) -> str:
        return self.version

    def runs_stages(self, model: Model) -> bool:
        """Return False for a class without stages, which README_GAUDI.md describes.

        HabanaAI/vllm-fork@v0.7.2+Gaudi-1.21.2 and @v0.9.0.1+Gaudi-1.22.0:README_GAUDI.md: "single
        or multi-node multi-HPU". A class that is not known is not refused.
        """
        known = model.architecture
        return not known or divides_into_stages(self.identity.name, self.version, known)

    def pools(self, model: Model, args: EngineArgs) -> bool:
        return pooling.pools(model, args)

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        return self.memory

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True if this deployment reads a QUANT_CONFIG.

        Weights that are fp8 on disk run without, unless one is named.
        """
        stored = model.quantization == "fp8"
        return fork_fp8.names_quant_file(request) or (request.dtype == "fp8" and not stored)

    def propose(self, context: Context) -> Proposal:
        """Return every variable and option.

        They are the scripts' rules, and in auto tuning our differences from them.
        """
        request = context.request
        if request.tuning == "auto":
            context = self.assumed(context)
        else:
            # the script does not read what follows --
            context = replace(context, limits=self._of_script(request))
        decisions = Decisions(request.environment)
        self.script(context, decisions)
        if request.tuning == "auto":
            self._tune(context, decisions)
        else:
            self.warn_of_script(request, decisions)
        decisions.option_of("--served-name", "--served-model-name", request.served_name or None)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _tune(self, context: Context, decisions: Decisions) -> None:
        """Turn the settings of the script into those of auto tuning."""
        request = context.request
        self.check(context)
        decisions.warnings += check_exported(request.environment, self.label, decisions.settings())
        self.adjust(context, decisions)
        follow_profile(context, decisions, self.version, named_only=self.profile_named_only)
        self.quantise(context, decisions)
        if pooling.pools(context.model, request.args):
            pooling.add_options(context, decisions)
        else:
            # without the one that the script of deepseek_r1 gives every model
            table = option_table(self.identity.options)
            switch = self.reasoning_switch
            add_parsers(context, decisions, table, reasoning_switch=switch, fork=self.version)
            for name in (REASONING_SWITCH, REASONING):
                if source_of(decisions, name) == "computed":
                    decisions.drop("option", name)
        fork_fp8.warn_of_range(context, decisions, needs_range=self.needs_gaudi2_range)
        self.more_options(context, decisions)
        self._plan_buckets(context, decisions)
        if pooling.pools(context.model, request.args):
            pooling.leave_out_decode(decisions)

    def assumed(self, context: Context) -> Context:
        """Return the context with what this release assumes by itself."""
        return context

    def check(self, context: Context) -> None:
        """Raise LaunchError for what this release cannot do here."""
        fork_auto.check(context)

    def adjust(self, context: Context, decisions: Decisions) -> None:
        """Turn the script's settings into ours."""
        self.experts(context.model, decisions)
        fork_auto.adjust(context, decisions, self.unread)
        self.limit_padding(context.request.padding_limit, decisions)

    def experts(self, model: Model, decisions: Decisions) -> None:
        """Decide expert parallelism."""
        fork_auto.experts(model, decisions)

    def limit_padding(self, asked: str | None, decisions: Decisions) -> None:
        """Decide the variables of the padding limit."""
        fork_auto.limit(asked, decisions, self.facts.get("bucket_limit", "unknown"))

    def quantise(self, context: Context, decisions: Decisions) -> None:
        """Decide the settings of fp8."""
        needed = self.needs_quant_file(context.request, context.model)
        fork_fp8.quantise(context, decisions, needed=needed, source=self.cache_type_source)

    def warn_of_script(self, request: Request, decisions: Decisions) -> None:
        """Warn of what the script sets and this release cannot read."""

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

    def more_options(self, context: Context, decisions: Decisions) -> None:
        """Add long options of another version's script that this engine supports."""
        request = context.request
        for flag, option, value in (
            ("--max-prefill-seqs", "--max-num-prefill-seqs", request.max_prefill_seqs),
            ("--max-capture-len", "--max-seq-len-to-capture", request.max_capture_len),
            ("-e", "--num-scheduler-steps", request.scheduler_steps),
            ("--memory-utilization", self.memory_share, request.memory_utilization),
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
        return asked.algorithm, self.warmed(asked.ours(), settings, context)

    def asking(self, answer: InstalledAnswer) -> Engine:
        if "extension_kind" not in self.facts:
            return self
        return replace(self, answer=answer)

    def warmed(self, buckets: Buckets, settings: Sequence[Setting], context: Context) -> Buckets:
        """Return the part of the list that is compiled; a pooling model has no decode."""
        if pooling.pools(context.model, context.request.args):
            return Buckets(buckets.prompt, [])
        return buckets

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
        ours = partial(engine_buckets, family, algorithm, env, arguments)
        return BucketQuestion(family, _EXTENSION, algorithm, env, arguments, ours)

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        """Return the deliberate differences from this version's start script."""
        return deliberate_differences(request, host, placement, command)

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return argv from the interpreter on, with the user's arguments last.

        In reference tuning they are where the script has them.
        """
        reference = context.request.tuning == "reference"
        args = engine_args(
            table=option_table(self.identity.options),
            head=(self.python or "python3", *API_SERVER),
            ours=sent_options(settings),
            user=context.request.extra,
            file=context.request.file_words,
            place=self.entry_after if reference else "",
        )
        return Command(
            argv=args.to_argv(),
            env=sent_variables(settings),
            cpus=context.placement.cpus,
            memory_node=context.placement.memory_node,
            user=args.user_words,
        )
