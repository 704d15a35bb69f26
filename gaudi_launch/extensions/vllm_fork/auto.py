"""Automatic tuning of the vLLM fork: the scripts' settings, with corrections.

Left out is what is broken, unread or not for this model. Each difference from the scripts is one
function below, and each gives its reason in the plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_file import planned
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.buckets.engine_env import exported
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.full_load import overhead_percent
from gaudi_launch.core.buckets.prompts_per_step import choose_prompts
from gaudi_launch.core.engines.model_rules import check_model
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.lengths import BLOCK, reason_for, round_down
from gaudi_launch.core.planning.plan import Setting, variables_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits, as_limits
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.extensions.vllm_fork.pooling import pools

_MOE_ONLY = ("VLLM_DYNAMIC_MOE_MIN_TOKENS", "VLLM_DYNAMIC_MOE_MIN_EXPERTS_SINGLEHPU")
PREFIX_CACHING = "--enable-prefix-caching"
PROMPTS = "--max-num-prefill-seqs"
_README = "HabanaAI/vllm-fork@aice/v1.22.0:README_GAUDI.md"
_RAY_ONLY = ("RAY_IGNORE_UNHANDLED_ERRORS", "VLLM_RAY_DISABLE_LOG_TO_DRIVER")
_BUCKET_VARIABLE = re.compile(
    r"^VLLM_(PROMPT|DECODE)_\w+_BUCKET_(MIN|STEP|MAX)$|^VLLM_EXPONENTIAL_BUCKETING$"
)
# the error of --padding-limit by the installed extension's answer
_NO_LIMIT = {"false": "plan.limit_old"}
# true everywhere by default, and only clutter in a plan
_DEFAULTS = {
    "VLLM_PROFILER_ENABLED": "false",
    "VLLM_ENGINE_PROFILER_ENABLED": "false",
    "VLLM_ENGINE_PROFILER_WARMUP_STEPS": "0",
    "VLLM_ENGINE_PROFILER_STEPS": "1",
    "VLLM_ENGINE_PROFILER_REPEAT": "1",
}


def check(context: Context) -> None:
    """Refuse settings that the engine refuses, or accepts and hangs on.

    Each was seen in its source or executed. Raises LaunchError.
    """
    check_model(context)
    environment, args = context.request.environment, context.request.args

    def on(name: str) -> bool:
        return boolean(environment.get(name, ""))

    contiguous = on("VLLM_CONTIGUOUS_PA")
    if on("VLLM_MERGED_PREFILL"):
        raise LaunchError("plan.merged_prefill", ExitCode.USAGE)
    if contiguous and args.has(PREFIX_CACHING):
        raise LaunchError("plan.contiguous", ExitCode.USAGE, other=PREFIX_CACHING)
    if contiguous and _speculates(args):
        raise LaunchError("plan.contiguous", ExitCode.USAGE, other="speculative decoding")


def adjust(context: Context, decisions: Decisions, unread: Sequence[str]) -> None:
    """Turn the scripts' settings into ours.

    ``unread`` are variables that the script exports and that its tree does not read.
    """
    model, request = context.model, context.request
    agreed, needed = context.request.trust_remote_code, context.model.remote_code
    decisions.drop("option", "--trust-remote-code")
    if agreed and needed is not False:
        decisions.option("--trust-remote-code", None, message("plan.agreed"), source="flag")
    elif agreed:
        decisions.warn("plan.remote_code_unneeded", model=context.model.name)
    for name in unread:
        decisions.drop("env", name)
    if decisions.get("option", "--distributed_executor_backend") != "ray":
        for name in _RAY_ONLY:
            decisions.drop("env", name)
    for name, value in _DEFAULTS.items():
        if decisions.get("env", name) == value and name not in request.environment:
            decisions.drop("env", name)
    decisions.drop("option", "--use-v2-block-manager")
    if model.stages > 1:
        reason = message("cluster.why_tensor_cache")
        decisions.env("PT_HPUGRAPH_DISABLE_TENSOR_CACHE", "0", reason, origin=_README)
    # close what the scripts leave open to all clients of the port
    longest = context.model.max_position_embeddings
    # /sleep, /wake_up, /reset_prefix_cache and /server_info, for which no key is needed
    # (HabanaAI/vllm-fork@17a7946f4:vllm/entrypoints/openai/api_server.py:870-915)
    decisions.drop_unless_exported("VLLM_SERVER_DEV_MODE")
    if longest and context.limits.max_model_len <= longest:
        # the engine's check of the length stays on (the same tree's vllm/config.py
        # _get_and_verify_max_len)
        decisions.drop_unless_exported("VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    _length_reason(context, decisions)
    _spelling(decisions)
    if request.args.has(PREFIX_CACHING) or _speculates(request.args):
        decisions.env("VLLM_CONTIGUOUS_PA", "false", message("plan.no_contiguous"))


def experts(model: Model, decisions: Decisions) -> None:
    """Keep expert parallelism and its variables for a model with experts only."""
    if model.moe:
        if "llama-4-scout" not in model.name.lower():
            reason = message("plan.moe", experts=model.experts or "?")
            decisions.option("--enable-expert-parallel", None, reason)
        return
    decisions.drop("option", "--enable-expert-parallel")
    for name in _MOE_ONLY:
        decisions.drop("env", name)
    if model.moe is None and model.name:
        decisions.warn("plan.moe_unknown", model=model.name)


def _length_reason(context: Context, decisions: Decisions) -> None:
    """Give the reason where the length is the model's, not the script's."""
    longest, length = context.model.max_position_embeddings, context.limits.max_model_len
    reason = reason_for(context.request, length)
    of_model = longest and round_down(longest, BLOCK) == length
    if reason is None and context.request.max_model_len is None and of_model:
        reason = message("plan.length_of_model", longest=longest)
    if reason is not None:
        decisions.explain("option", "--max-model-len", reason)


def _spelling(decisions: Decisions) -> None:
    # `true` is read by every parser of every version; `True` is false to some (facts: boolean
    # spellings)
    for each in decisions.variables():
        if each.value in ("True", "False") and each.source != "environment":
            decisions.force_env(
                each.name, each.value.lower(), each.reason, source=each.source, origin=each.origin
            )


def limit(asked: str | None, decisions: Decisions, known: str) -> None:
    """Send *_BUCKET_LIMIT only when it was requested and is supported.

    An extension older than the padding limit reads it as an integer and fails on 0.25; a later one
    has 0.25 by default. ``known`` is the installed extension's answer.
    """
    if asked is None:
        for each in decisions.variables():
            if each.name.endswith("_BUCKET_LIMIT") and each.source != "environment":
                decisions.drop("env", each.name)
    elif known != "true" and not asked.isdigit():
        raise LaunchError(_NO_LIMIT.get(known, "plan.limit_unknown"), ExitCode.USAGE, found=asked)


def knows_limit(facts: Mapping[str, str]) -> bool:
    """Return True if *_BUCKET_LIMIT may be sent.

    Only when the installed extension was queried and supports it.
    """
    return facts.get("bucket_limit") == "true"


def plan_buckets(
    context: Context,
    decisions: Decisions,
    question: CoverageQuestion,
    cost: StepTime,
    count: Callable[[], int],
) -> None:
    """Set bucket ranges and prefill batch of the planner: full coverage, few graphs.

    ``cost`` are the step times. ``count`` returns the number of graphs of the settings decided so
    far. Variables that the user exported, or a profile has, are kept; the script's arithmetic then
    fills in the rest, because parts of two plans together guarantee no coverage.
    """
    request = context.request
    # the variables of buckets that the user exported or a profile has
    names = {name for name, value in request.environment.items() if value}
    names |= {setting.name for setting in decisions.settings() if setting.source == "profile"}
    own = set(filter(_BUCKET_VARIABLE.match, names))
    if own:
        decisions.warn("plan.own_buckets", names=", ".join(sorted(own)))
        return

    goal = BucketGoal(reduce=request.reduce)
    prompts, reason = _prompts(context, question, goal, cost)
    question = replace(question, limits=replace(question.limits, max_num_prefill_seqs=prompts))
    found = planned(question, goal, cost)
    if request.max_prefill_seqs is None:
        decisions.option(PROMPTS, str(prompts), reason)
    theirs = next((script.graphs for script in found.comparison[1:]), 0)
    percent = overhead_percent(found.full_load[0])
    if found.settings.get("VLLM_EXPONENTIAL_BUCKETING") == "true":
        # which reads no ranges, and builds its list itself
        for setting in decisions.variables():
            if _BUCKET_VARIABLE.match(setting.name):
                decisions.drop("env", setting.name)
    ranges = dict(found.settings)
    if request.padding_limit is not None:
        ranges = {name: each for name, each in ranges.items() if not name.endswith("_LIMIT")}

    def settle(graphs: int) -> None:
        reason = message(
            "plan.buckets_planned",
            graphs=graphs,
            theirs=theirs,
            percent=percent,
            requests=context.limits.max_num_seqs,
        )
        if request.reduce is not None:
            batch, length = request.reduce
            reason = message("plan.buckets_reduce", graphs=graphs, batch=batch, length=length)
        for name, value in ranges.items():
            decisions.env(name, value, reason, origin="assumed step times")

    settle(found.buckets.graphs)
    # the number of graphs is known when the settings are set
    settle(count())


def chooses_prompts(context: Context) -> bool:
    """Return True if the plan chooses the prompts of a step.

    With prefix caching the list has every context of every rectangle: one prompt a step stays.
    """
    request = context.request
    if request.tuning != "auto" or request.max_prefill_seqs is not None:
        return False
    return not pools(context.model, request.args) and not request.args.has(PREFIX_CACHING)


def _prompts(
    context: Context, question: CoverageQuestion, goal: BucketGoal, cost: StepTime
) -> tuple[int, Message]:
    """Return the prompts of a step, with the reason."""
    asked = context.request.max_prefill_seqs
    if asked is not None:
        return asked, message("plan.flag", flag="--max-prefill-seqs")
    if pools(context.model, context.request.args):
        count = question.limits.max_num_prefill_seqs
        return count, message("plan.prefill_pooling", count=count)
    if not chooses_prompts(context):
        return 1, message("plan.prefill_planned", count=1)
    choice = choose_prompts(question, goal, cost)
    return choice.prompts, choice.reason()


def planned_limits(
    context: Context, settings: Sequence[Setting], num_blocks: int | None
) -> EngineLimits:
    """Return the shapes that the warm-up planner must cover.

    As many prompts per step as the settings have; one in reference tuning, which saves the most
    graphs. ``num_blocks`` is the expected size of the cache (None: unknown), for which buckets are
    the best; shapes of a larger cache are covered as well.
    """
    request, limits = context.request, context.limits
    pooling = pools(context.model, request.args)
    prefix = request.args.has(PREFIX_CACHING)
    env = {**exported(request.environment), **variables_of(settings)}
    # "1" is true to the model runners and false to some bucket code: a contiguous cache covers both
    contiguous = not prefix and boolean(env.get("VLLM_CONTIGUOUS_PA", "true"))
    prompts = limits.max_num_prefill_seqs
    if not pooling and request.max_prefill_seqs is None:
        prompts = _settled(request, settings) or prompts
    more = {"contiguous_pa": contiguous, "max_num_prefill_seqs": prompts, "prefix_caching": prefix}
    asked = as_limits({**asdict(limits), **more})
    if num_blocks is not None:
        # sequences that share a prefix each count its blocks, but no bucket of the engine is larger
        # than the cache
        fill = max(min(num_blocks, asked.num_blocks), limits.max_num_seqs)
        asked = replace(asked, num_blocks=fill, cache_blocks=num_blocks)
    return asked


def _settled(request: Request, settings: Sequence[Setting]) -> int:
    """Return the prompts of a step by the settings; 0: the engine's default."""
    text = next((setting.value or "" for setting in settings if setting.name == PROMPTS), "")
    if request.tuning != "auto":
        return 1
    return int(text or 0)


def _speculates(args: EngineArgs) -> bool:
    return any(
        argument.name.startswith(("--speculative", "--num-speculative")) for argument in args.user
    )
