"""vllm-gaudi: upstream vLLM with the plugin for Gaudi, the fork's successor.

Read from vllm-project/vllm-gaudi@091bbadd; options are those of upstream vLLM 0.32.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.buckets.engine_buckets import algorithm_of, engine_buckets
from gaudi_launch.core.buckets.engine_env import exported
from gaudi_launch.core.buckets.families import EXPONENTIAL_SWITCH, ladder_name
from gaudi_launch.core.buckets.ladder_rules import LadderRules, rules_of
from gaudi_launch.core.engines.base import given, sent_variables
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.facts.registry import InstalledLists, installed_lists
from gaudi_launch.core.engines.generation import refuse_first_gaudi
from gaudi_launch.core.engines.known_versions import (
    matching,
    newest,
    not_offered,
    releases,
    version_of,
)
from gaudi_launch.core.engines.launch_conditions import check_request, settled
from gaudi_launch.core.engines.model_rules import check_model, follow_profile
from gaudi_launch.core.engines.parsers import add_parsers, with_parsers
from gaudi_launch.core.engines.support import load_switch, runs_compact_gdn, support_of
from gaudi_launch.core.engines.upstream_tasks import CHAT, task_of
from gaudi_launch.core.engines.version_facts import names_of, reads_variable
from gaudi_launch.core.engines.vllm_gaudi import buckets as gaudi_buckets
from gaudi_launch.core.engines.vllm_gaudi import rules as gaudi_rules
from gaudi_launch.core.engines.vllm_gaudi.calibration import CALIBRATION
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.recurrent_state import page_of
from gaudi_launch.core.models.sizing import KV_BYTES, MemoryRules
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.effects import unmodelled
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
from gaudi_launch.core.planning.lengths import BLOCK, LengthRules, limits_within, round_up
from gaudi_launch.core.planning.memory import memory_in
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.parse import number
from gaudi_launch.core.planning.passthrough import sent_options, written
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting, variables_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import step_time_in
from gaudi_launch.core.planning.support_answer import ModelSupport
from gaudi_launch.core.predict.limits import CoverageQuestion

if TYPE_CHECKING:
    from gaudi_launch.core.engines.facts.installed import InstalledFacts

NAME = "vllm-gaudi"
# `vllm serve` by its module: the program of that name may belong to another environment
ENTRY = ("-m", "vllm.entrypoints.cli.main", "serve")
# the plugin's launcher gives every model a step of 2048 tokens (.cd/server/settings_vllm.csv);
# longer prompts are computed in pieces
_BATCHED_TOKENS = 2048
# the defaults of the 1.22 start script; the engine's would be the model's full length and 256
# requests or more
_LENGTH, _SEQS = 16384, 128
# unsupported options: the field of Request, the option, and the sentence with the alternative
_WITHOUT = {
    "scheduler_steps": ("-e", "gaudi.no_steps"),
    "no_zero_padding": ("-z", "gaudi.no_zero_padding"),
    "inc_fp8": ("-q", "gaudi.no_inc_switch"),
    "max_capture_len": ("--max-capture-len", "gaudi.no_capture"),
}

# the module with the quantisation methods
_PLATFORM = "vllm_gaudi/platform.py"


@dataclass(frozen=True)
class VllmGaudi(Engine):
    """The plugin with upstream vLLM."""

    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    version: str = "main"
    lists: InstalledLists | None = None
    read: InstalledFacts | None = None
    answer: InstalledAnswer | None = None

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity(
            NAME,
            self.version,
            self.python,
            self.facts,
            options=UPSTREAM,
            variables=NAME,
            facts_date=self.release.date,
        )

    def check_features(self, request: Request, model: Model) -> tuple[Message, ...]:
        return check_request(self.identity, request, model)

    def unmodelled(self, request: Request) -> tuple[str, ...]:
        """Return the switch of unified attention where this release has it.

        Its buckets are of another kind (vllm-project/vllm-gaudi@v0.11.2 to @v0.17.1:
        vllm_gaudi/extension/bucketing/unified.py), by rules that are not here.
        """
        name = gaudi_rules.UNIFIED
        if boolean(request.environment.get(name, "")) and self.reads(name):
            return (name,)
        return ()

    def settled(self, context: Context, proposed: Sequence[Setting]) -> Proposal:
        return settled(self.identity, context, proposed)

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return a model's support by this version's list, or the installed engine's."""
        found = support_of(
            model,
            "vllm-gaudi",
            self.version,
            installed=self.lists,
            quantization=args.last("--quantization") or "",
            variables=variables,
        )
        on = gaudi_rules.caches_states(args, variables or {}, self.release)
        blocks = gaudi_rules.state_blocks(
            model, self.release, compact=found.compact_states, caches=on
        )
        return replace(found, state_blocks=blocks)

    @property
    def scheduling(self) -> Literal["v0", "v1"]:
        return "v1"

    def caches_prefixes(self, request: Request, model: Model) -> bool:
        return gaudi_rules.caches_prefixes(request, model, self.release)

    def cache_arguments(self, model: Model) -> tuple[str, ...]:
        return gaudi_rules.cache_arguments(model)

    def prefix_arguments(self, *, on: bool) -> tuple[str, ...]:
        """Return upstream vLLM's switch (vllm/engine/arg_utils.py)."""
        if on:
            return ("--enable-prefix-caching",)
        return ("--no-enable-prefix-caching",)

    @property
    def lacks(self) -> tuple[str, ...]:
        return (*(flag for flag, _ in _WITHOUT.values()), "--tuning reference")

    @property
    def can(self) -> tuple[str, ...]:
        """Return what it supports, in the terms of the engines page."""
        return ("chat", "embed", "rerank", "vision", "fp8", "awq", "experts", "lora", "prefix")

    @property
    def bucket_file(self) -> str:
        """Return the variable that names a bucket file."""
        return gaudi_buckets.FILE

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return lengths within the model, in complete blocks where the model allows.

        Prompts may be longer than one step.
        """
        pooling = task_of(model, request.args) != CHAT
        whole = pooling or request.args.has("--no-enable-chunked-prefill")
        chunk, block = gaudi_buckets.chunk_of(model), self._block(request, model)
        least = round_up(block, max(chunk, 1))
        rules = LengthRules(
            max(_LENGTH, least),
            _SEQS,
            max(_BATCHED_TOKENS, least),
            whole=whole,
            splits=not whole,
            answers=not pooling,
            prefill_seqs=self._prefill(request),
            step_of=1,
        )
        limits = limits_within(rules, request, model)
        tokens = limits.max_num_batched_tokens
        if chunk and tokens % chunk and self.rules.chunks in ("stated", "checked"):
            # vllm_gaudi/extension/bucketing/common.py initialize, from v0.17.1 on
            raise LaunchError(
                "gaudi.tokens_of_chunks",
                ExitCode.USAGE,
                option=written(request.args, "-t"),
                tokens=tokens,
                chunk=chunk,
                near=round_up(tokens, chunk),
            )
        return replace(limits, block_size=block, least_length=least)

    def _block(self, request: Request, model: Model) -> int:
        """Return the tokens of a block: a state's, where buckets count such blocks."""
        rules = self.support(model, request.args, request.environment).cache_rules
        kv_dtype = request.args.last("--kv-cache-dtype")
        if kv_dtype is None and self.needs_quant_file(request, model):
            kv_dtype = "fp8_inc"
        page = page_of(model, request.cards or 1, KV_BYTES.get(kv_dtype or "auto", 2), rules)
        if page is None or rules.state_blocks is None or not rules.state_blocks.counted:
            return BLOCK
        return page.tokens

    @staticmethod
    def _prefill(request: Request) -> int:
        exported = request.environment.get(gaudi_buckets.PREFILL)
        if not exported:
            return 1
        return number(gaudi_buckets.PREFILL, exported)

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for what this engine lacks, with the alternative."""
        refuse_first_gaudi(product_of(host))
        if "plugin" not in self.facts and not self.release.executed:
            raise not_offered(NAME, self.version)
        if request.tuning == "reference":
            raise LaunchError("gaudi.reference", ExitCode.USAGE)
        for flag, instead in given(request, _WITHOUT.items()):
            raise LaunchError("gaudi.no_option", ExitCode.USAGE, flag=flag, instead=text(instead))
        if request.padding_limit is not None and not self.rules.pad:
            first = next(each.label for each in releases(NAME) if each.buckets.get("pad"))
            raise LaunchError(
                "gaudi.no_padding_limit", ExitCode.USAGE, engine=self.identity.label, first=first
            )
        gaudi_rules.check(request, model)

    @property
    def calibration(self) -> Calibration | None:
        return CALIBRATION

    @property
    def over_hosts(self) -> OverHosts | None:
        """Return its abilities over several hosts, which its makers have not validated.

        vllm-project/vllm-gaudi@091bbadd:docs/configuration/env_variables.md.
        """
        return OverHosts(validated=False)

    def runs_stages(self, model: Model) -> bool:
        """Return False: its worker does not pass tensors from stage to stage.

        vllm-project/vllm-gaudi@091bbadd:docs/features/supported_features.md lists pipeline parallel
        inference under the planned features; vllm-project/vllm-gaudi#728.
        """
        return False

    def pools(self, model: Model, args: EngineArgs) -> bool:
        """Return True for encoders: get_kv_cache_spec has nothing for their layers."""
        # a multimodal class names the layers of its tower only
        if model.multimodal or self.generates(model, args):
            return False
        return self.release.layers.get(model.architecture or "") == ("encoder",)

    def generates(self, model: Model, args: EngineArgs) -> bool:
        """Return True for a model that is not served for embedding, ranking or pooling."""
        return task_of(model, args) == CHAT

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        """Return its memory rules: no profile run, and one spare block.

        Its profile run returns immediately (vllm_gaudi/v1/worker/hpu_worker.py).
        """
        return MemoryRules(profile_run=False, spare_block=True)

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True if this deployment reads a QUANT_CONFIG."""
        return gaudi_rules.needs_quant_file(request, model)

    def propose(self, context: Context) -> Proposal:
        """Return every variable and option.

        The warm-up comes last, because it depends on all others.
        """
        request = context.request
        decisions = Decisions(request.environment)
        if self.read is not None:
            decisions.warnings += self.read.notes()
        check_model(context)
        task = task_of(context.model, request.args)
        gaudi_rules.address(context, decisions)
        gaudi_rules.lengths(context, decisions)
        gaudi_rules.cards(context, decisions)
        gaudi_rules.mode(context, decisions)
        gaudi_rules.types(context, decisions)
        gaudi_rules.first_steps(context, decisions)
        switch = load_switch(context.model, NAME, self.version)
        if switch is not None:
            decisions.env(switch[0], "0", switch[1], source="engine")
        gaudi_rules.utilization(context, decisions, memory_in(context, decisions.settings(), self))
        compact = runs_compact_gdn(context.model, self.release, request.environment)
        gaudi_rules.attention(context, decisions, task, self.release, compact_gdn=compact)
        gaudi_rules.experts(context, decisions)
        gaudi_rules.task(context, decisions, task)
        gaudi_rules.vision(context, decisions, self.reads)
        gaudi_rules.switches(context, decisions)
        follow_profile(context, decisions, NAME, named_only=False)
        if task == CHAT:
            parsers = with_parsers(UPSTREAM, names_of(self.release).parsers)
            add_parsers(context, decisions, parsers, upstream=self.release.upstream)
        self._warmup(context, decisions, task)
        decisions.warnings += check_exported(request.environment, NAME, decisions.settings())
        own_strategy = decisions.get("env", gaudi_buckets.STRATEGY) or decisions.get(
            "env", EXPONENTIAL_SWITCH
        )
        if request.reduce is not None and own_strategy:
            decisions.warn("gaudi.reduce_left", strategy=own_strategy)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _warmup(self, context: Context, decisions: Decisions, task: str) -> None:
        request = context.request
        if unmodelled(request, context.model):
            # without numbers there is no list of buckets to plan: the engine's own strategy
            return
        own = gaudi_buckets.own_variables(dict(request.environment))
        if context.memory_only and not own and not gaudi_rules.need_in(context).known:
            # a fixed share is reserved for graphs, however many there are
            return
        self._prompts(context, decisions)
        if not self._warms(request, task):
            decisions.warn("gaudi.pooling_cold" if task != CHAT else "gaudi.eager_cold")
            return
        if own:
            decisions.warn("plan.own_buckets", names=", ".join(own))
            for name in own:
                decisions.env(name, request.environment[name], message("plan.exported"))
        else:
            self._strategy(context, decisions)
        # the planner refuses an impossible list; it has no graphs to reserve memory for
        with contextlib.suppress(BucketError):
            memory = memory_in(context, decisions.settings(), self)
            found = self.buckets(decisions.settings(), context, memory.num_blocks)
            if found is not None:
                gaudi_rules.reserved(context, decisions, memory, found[1].graphs)
                largest = max((each[2] for each in found[1].decode), default=0)
                least = memory.num_blocks or largest
                # releases without this cut make buckets whose first step ends without memory
                # (vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/exponential.py)
                if largest > 3 * least and not gaudi_buckets.full_references(context.model):
                    decisions.warn("gaudi.buckets_over_cache", largest=largest, blocks=least)
        if not own and not context.memory_only:
            # less for graphs is more for the cache, and the largest bucket follows the cache
            self._strategy(context, decisions)

    def _prompts(self, context: Context, decisions: Decisions) -> None:
        """Propose the prompts of one step, simulated where the engine joins them."""
        request, limits = context.request, context.limits
        name, origin = gaudi_buckets.PREFILL, gaudi_rules.RUNNER
        if request.max_prefill_seqs is not None:
            reason = message("plan.flag", flag="--max-prefill-seqs")
            decisions.env(
                name, str(limits.max_num_prefill_seqs), reason, source="flag", origin=origin
            )
            return
        count, reason = limits.max_num_prefill_seqs, message("gaudi.prefill")
        if self.chooses_prompts(context):
            settings = decisions.settings()
            blocks = memory_in(context, settings, self).num_blocks
            asked = self._coverage(context, settings, blocks)
            count, reason = gaudi_buckets.prompts(context, asked, step_time_in(context, self))
        decisions.env(name, str(count), reason, origin=origin)

    def chooses_prompts(self, context: Context) -> bool:
        request = context.request
        if not self._warms(request, task_of(context.model, request.args)):
            return False
        own = gaudi_buckets.own_variables(dict(request.environment))
        return not own and gaudi_buckets.chooses_prompts(context)

    def _strategy(self, context: Context, decisions: Decisions) -> None:
        request, choice = context.request, self._choice(decisions.settings(), context)
        if choice.strategy == "file":
            path = choice.path(request.files_dir)
            decisions.env(gaudi_buckets.FILE, path, choice.reason, origin=gaudi_buckets.ORIGIN)
            return
        name, value = gaudi_buckets.strategy_variable(choice.strategy, self.rules)
        decisions.env(name, value, choice.reason, origin=gaudi_buckets.ORIGIN)
        if request.padding_limit is not None:
            for name, value in gaudi_buckets.pad_variables(request.padding_limit).items():
                decisions.env(
                    name, value, choice.reason, source="flag", origin=gaudi_buckets.ORIGIN
                )

    def _warms(self, request: Request, task: str) -> bool:
        # hpu_model_runner.py warmup_model: neither eager nor pooling models are warmed up
        return task == CHAT and not request.args.has("--enforce-eager")

    def _choice(
        self, settings: Sequence[Setting], context: Context
    ) -> gaudi_buckets.StrategyChoice:
        """Return the bucket strategy for these settings.

        It depends on the number of KV blocks they leave.
        """
        blocks = memory_in(context, settings, self).num_blocks
        context = gaudi_buckets.as_settled(context, settings)
        asked = self._coverage(context, settings, blocks)
        return gaudi_buckets.choose(context, asked, step_time_in(context, self))

    def _file(self, settings: Sequence[Setting], context: Context) -> tuple[str, str] | None:
        """Return (path, text) of the bucket file that these settings name.

        It is the planner's, or one of the user's.
        """
        value = next((s.value for s in settings if s.name == gaudi_buckets.FILE), None)
        if not value or not self._warms(
            context.request, task_of(context.model, context.request.args)
        ):
            return None
        if gaudi_buckets.own_variables(dict(context.request.environment)):
            if context.request.bucket_file is None:
                return None
            return (value, context.request.bucket_file)
        choice = self._choice(settings, context)
        path = choice.path(context.request.files_dir)
        if choice.file is not None and path == value:
            return (path, choice.file)
        return None

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """Return the grid that these settings warm up.

        Return None where nothing is warmed up, or by a file that was not read.
        """
        if not self._warms(context.request, task_of(context.model, context.request.args)):
            return None
        asked = self.bucket_question(settings, context, num_blocks)
        if asked.algorithm == "file" and asked.arguments["bucket_file"] is None:
            return None
        found = mapped(lambda answer: answer(asked), self.answer)
        if found is not None:
            return found
        return asked.algorithm, asked.ours()

    def asking(self, answer: InstalledAnswer) -> Engine:
        if "plugin" not in self.facts:
            return self
        return replace(self, answer=answer)

    @property
    def bucket_family(self) -> str:
        return ladder_name(self.rules)

    @property
    def rules(self) -> LadderRules:
        """Return the rules of this release's bucket code.

        Those of the newest release with facts, where the release has none.
        """
        return rules_of(self.release.buckets)

    @property
    def release(self) -> Version:
        """Return the facts of this release, else those of the newest one with facts."""
        return version_of(NAME, self.version) or newest(NAME)

    def reads(self, variable: str) -> bool:
        """Return True if the code of this release reads a variable."""
        return reads_variable(self.release, variable)

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        """Return the coverage for the warm-up planner; None without a warm-up."""
        if not self._warms(context.request, task_of(context.model, context.request.args)):
            return None
        return self._coverage(gaudi_buckets.as_settled(context, settings), settings, num_blocks)

    def _coverage(
        self, context: Context, settings: Sequence[Setting], num_blocks: int | None
    ) -> CoverageQuestion:
        contiguous = gaudi_rules.is_contiguous(settings)
        prefixes = gaudi_rules.plans_prefixes(settings, context, self.release)
        return gaudi_buckets.question(context, self.bucket_family, contiguous, prefixes, num_blocks)

    def bucket_question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> BucketQuestion:
        """Return the inputs of the grid, for our arithmetic or the plugin's."""
        env = {**exported(context.request.environment), **variables_of(settings)}
        algorithm = algorithm_of(self.bucket_family, env, with_limit=False)
        file = self._file(settings, context)
        prefixes = gaudi_rules.plans_prefixes(settings, context, self.release)
        context = gaudi_buckets.as_settled(context, settings)
        arguments = gaudi_buckets.arguments(
            context, prefixes, num_blocks, file[1] if file else None
        )
        if self.release.state_blocks.get("buckets") == "decode":
            # the runner makes prompts of blocks of 128, and decode buckets of the cache's
            arguments |= {"block_size": BLOCK, "decode_block_size": arguments["block_size"]}
        family = self.bucket_family
        ours = partial(engine_buckets, family, algorithm, env, arguments)
        return BucketQuestion(family, gaudi_buckets.PACKAGE, algorithm, env, arguments, ours)

    @property
    def config_file(self) -> Literal["read"]:
        """Return "read": options of the file come before all others.

        Source: vllm-project/vllm 0.32.0:vllm/utils/argparse_utils.py, _pull_args_from_config.
        """
        return "read"

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return ``vllm serve MODEL`` with these options, then the user's arguments.

        Of a repeated option the last one counts.
        """
        args = engine_args(
            table=option_table(UPSTREAM),
            head=(self.python or "python3", *ENTRY, context.request.model),
            ours=sent_options(settings),
            user=context.request.extra,
            file=context.request.file_words,
        )
        own = gaudi_buckets.own_variables(dict(context.request.environment))
        file = None if own else self._file(settings, context)
        return Command(
            argv=args.to_argv(),
            env=sent_variables(settings),
            cpus=context.placement.cpus,
            memory_node=context.placement.memory_node,
            files=dict([file]) if file is not None else {},
            user=args.user_words,
        )


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Engine:
    """Return the plugin's engine at the installed version, or the named one.

    Without either, the newest release with facts.
    """
    if "plugin" not in facts:
        return VllmGaudi(python, facts, _named(name.partition("@")[2]))
    # it reads source code, which most commands never do
    from gaudi_launch.core.engines.facts.installed import read_installed

    lists = installed_lists(facts, _PLATFORM)
    return VllmGaudi(python, facts, facts["plugin"], lists, read_installed(python, facts))


def _named(version: str) -> str:
    """Return the complete version of ``0.26`` or "".

    Raises LaunchError (USAGE) for one without facts.
    """
    if not version:
        return newest(NAME).version
    found = matching(NAME, version)
    if found is None:
        raise not_offered(NAME, version)
    return found.version
