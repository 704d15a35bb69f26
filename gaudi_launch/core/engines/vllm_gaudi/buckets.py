"""The buckets that vllm-gaudi warms up: the planner's file, or a strategy's.

The strategy is the best of the engine's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.buckets.families import EXPONENTIAL_SWITCH
from gaudi_launch.core.buckets.ladder_rules import LadderRules
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.full_load import overhead_percent
from gaudi_launch.core.models.config import text_part
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.lengths import BLOCK, ceil_div
from gaudi_launch.core.planning.plan import Setting
from gaudi_launch.core.predict.limits import CoverageQuestion, as_limits

if TYPE_CHECKING:
    from gaudi_launch.core.buckets.strategies import Judged
    from gaudi_launch.core.predict.step_time import StepTime

ORIGIN = "vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/common.py"
# variables that decide buckets; the prefill batch among them is one of our options and leaves the
# rest to the plan
_BUCKET_VARIABLE = re.compile(
    r"^VLLM_(PROMPT|DECODE)_\w+_BUCKET_(MIN|STEP|MAX|PAD_MAX|PAD_PERCENT)$|^VLLM_EXPONENTIAL_BUCKETING$"
    r"|^VLLM_BUCKETING_(STRATEGY|FROM_FILE)$|^VLLM_ENABLE_BUCKETING$|^VLLM_MERGED_PREFILL$"
)
PREFILL = "VLLM_PROMPT_BS_BUCKET_MAX"
FILE = "VLLM_BUCKETING_FROM_FILE"
STRATEGY = "VLLM_BUCKETING_STRATEGY"
STRATEGIES = {"exponential": "exp", "linear": "lin", "pad": "pad"}
_PAD_DIMENSIONS = ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_CTX", "DECODE_BS", "DECODE_BLOCK")


@dataclass(frozen=True)
class StrategyChoice:
    """A strategy (``file``, ``exp``, ``lin`` or ``pad``) with its reason.

    For ``file`` also the file's text.
    """

    strategy: str
    reason: Message
    file: str | None = None

    def path(self, folder: str) -> str:
        """Return the file's path, named by its content: two plans never share one."""
        digest = hashlib.sha256((self.file or "").encode()).hexdigest()[:12]
        return str(PurePath(folder) / f"buckets-{digest}.txt")


PACKAGE = "vllm_gaudi"
"""The Python package that makes the plugin's buckets."""


def own_variables(environment: dict[str, str]) -> list[str]:
    """Return the user's exported variables that decide buckets."""
    return sorted(
        n for n, v in environment.items() if v and n != PREFILL and _BUCKET_VARIABLE.match(n)
    )


def pad_variables(limit: str) -> dict[str, str]:
    """Return --padding-limit for the padding-aware strategy, in integer percents.

    It applies to every dimension.
    vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/padding_aware.py: 0 to 50.
    """
    percent = str(round(100 * float(limit)))
    return {f"VLLM_{dimension}_BUCKET_PAD_PERCENT": percent for dimension in _PAD_DIMENSIONS}


def strategy_variable(strategy: str, rules: LadderRules) -> tuple[str, str]:
    """Return the variable and value by which a release takes a strategy."""
    if rules.pad:
        return STRATEGY, strategy
    return EXPONENTIAL_SWITCH, str(strategy == "exp").lower()


def speculative_tokens(args: EngineArgs) -> int:
    """Return the number of speculative tokens per step, by the user's arguments.

    Return 0 without speculation.
    """
    try:
        configured = parse_json(args.last("--speculative-config") or "{}")
        count = configured.get("num_speculative_tokens", 0)
    except (ValueError, AttributeError):
        count = 0
    text = args.last("--spec-tokens") or ""
    if text.isascii() and text.isdigit() and len(text) < 4:
        count = int(text)
    if isinstance(count, int) and 0 < count < 1000:
        return count
    return 0


def is_hybrid(model: Model) -> bool:
    """Return True if layers keep a state instead of a KV cache (GDN, Mamba)."""
    return model.attention_layers is not None and model.attention_layers != model.layers


def full_references(model: Model) -> bool:
    """Return True if the engine leaves the decode range at its theoretical size.

    This is so for hybrids and for models that mix sliding windows with full attention
    (hpu_model_runner.py warmup_model, skip_decode_block_clamp).
    """
    text = model.config.get("text_config", model.config)
    kinds = mapping(text).get("layer_types")
    mixed = (
        isinstance(kinds, list) and "sliding_attention" in kinds and len(set(map(str, kinds))) > 1
    )
    return is_hybrid(model) or mixed


def most_blocks(context: Context, contiguous: bool, physical: int | None) -> int:
    """Return the most blocks that a decode step can reference.

    With contiguous PA the cache itself. Else every sequence at its longest, but not over three
    times the cache: the engine clamps its range there (exponential.py), because shared prefixes are
    referenced more than once. It does not for layers with windows, whose cache is a full one, too
    (get_kv_cache_spec of hpu_model_runner.py), so that a file is the same. Blocks of hybrids
    are counted otherwise.
    """
    limits = context.limits
    worst = ceil_div(limits.max_model_len, limits.block_size) * limits.max_num_seqs
    if physical is None:
        return worst
    if contiguous:
        return max(physical, limits.max_num_seqs)
    if is_hybrid(context.model):
        return worst
    return max(min(worst, 3 * physical), limits.max_num_seqs)


def question(
    context: Context, family: str, contiguous: bool, prefixes: bool, physical: int | None
) -> CoverageQuestion:
    """Return the coverage for the warm-up planner; ``prefixes`` are cached."""
    limits = context.limits
    asked = {
        **asdict(limits),
        "contiguous_pa": contiguous,
        "num_blocks": most_blocks(context, contiguous, physical),
        "cache_blocks": physical,
        "prefix_caching": prefixes,
        "mixed_steps": True,
        "ahead": not context.request.args.has("--no-async-scheduling"),
    }
    if limits.input_max > limits.max_num_batched_tokens:
        # such prompts come in pieces, and the last piece may have any length
        asked["input_min"] = 1
    return CoverageQuestion(family, as_limits(asked), package=PACKAGE)


def as_settled(context: Context, settings: Sequence[Setting]) -> Context:
    """Return ``context`` with the prompts per step of these settings."""
    text = next((setting.value or "" for setting in settings if setting.name == PREFILL), "")
    if not text.isdigit():
        return context
    return replace(context, limits=replace(context.limits, max_num_prefill_seqs=max(1, int(text))))


def chooses_prompts(context: Context) -> bool:
    """Return True if the plan chooses the prompts of a step.

    Its model is warmed up. The runner joins prompts without context in one forward pass, but none
    of a model with states
    (vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/v1/worker/hpu_model_runner.py:2589,
    _can_merge_prefill_contents). Images in prompts are not simulated.
    """
    request, model = context.request, context.model
    given = request.max_prefill_seqs is not None or request.environment.get(PREFILL)
    if given or request.padding_limit is not None:
        return False
    return not is_hybrid(model) and "vision" not in model.multimodal


def prompts(context: Context, asked: CoverageQuestion, cost: StepTime) -> tuple[int, Message]:
    """Return the prompts of a step, with the reason.

    Arguments are those of `choose`.
    """
    from gaudi_launch.core.buckets.prompts_per_step import choose_prompts

    own_file = not asked.limits.contiguous_pa and bool(context.request.files_dir)
    goal = BucketGoal(reduce=context.request.reduce)
    choice = choose_prompts(asked, goal, cost, own_file=own_file)
    return choice.prompts, choice.reason()


def choose(context: Context, asked: CoverageQuestion, cost: StepTime) -> StrategyChoice:
    """Return the strategy for this deployment and its coverage."""
    request, contiguous = context.request, asked.limits.contiguous_pa
    if request.padding_limit is not None:
        return StrategyChoice("pad", message("plan.flag", flag="--padding-limit"))
    if is_hybrid(context.model):
        return StrategyChoice("exp", message("gaudi.hybrid_buckets"))
    from gaudi_launch.core.buckets.bucket_file import planned

    found = planned(asked, BucketGoal(reduce=request.reduce), cost)

    def weight(judged: Judged) -> float:
        return judged.weight(found.price)

    # if hot lengths are requested, the file is the answer, whatever the cost of all lengths
    if request.reduce is not None:
        best = found.comparison[0]
    else:
        best = min(found.comparison, key=weight)
    if contiguous or not request.files_dir or best is not found.comparison[0]:
        # the highest bucket must be the real number of blocks, which only the engine knows
        best = min(found.comparison[1:], key=weight)
        id = _why_strategy(contiguous, request.files_dir)
        return StrategyChoice(STRATEGIES[best.name], message(id, graphs=best.graphs))
    percents = [overhead_percent(each) for each in found.full_load]
    others = zip(found.comparison[1:], percents[1:], strict=True)
    theirs = ", ".join(
        f"{STRATEGIES[other.name]} {other.graphs} ({percent} %)" for other, percent in others
    )
    if request.reduce is not None:
        batch, length = request.reduce
        reason = message(
            "gaudi.buckets_reduce", graphs=best.graphs, batch=batch, length=length, theirs=theirs
        )
    else:
        reason = message(
            "gaudi.buckets_planned",
            graphs=best.graphs,
            theirs=theirs,
            percent=percents[0],
            requests=context.limits.max_num_seqs,
        )
    return StrategyChoice("file", reason, found.file)


def _why_strategy(contiguous: bool, files_dir: str | None) -> str:
    """Return the id of the reason for a strategy of the engine instead of a file."""
    if contiguous:
        return "gaudi.buckets_contiguous"
    if files_dir:
        return "gaudi.buckets_best"
    return "gaudi.buckets_alone"


def arguments(
    context: Context, prefixes: bool, num_blocks: int | None, file: str | None
) -> dict[str, Any]:
    """Return the arguments of the engine's bucket code (`engine_env.Arguments`)."""
    limits, args = context.limits, context.request.args
    return {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_prefill_seqs": limits.max_num_prefill_seqs,
        "block_size": limits.block_size,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "num_hpu_blocks": num_blocks
        or ceil_div(limits.max_model_len, limits.block_size) * limits.max_num_seqs,
        "prefix_caching": prefixes,
        "num_speculative_tokens": speculative_tokens(args),
        "mamba_chunk_size": chunk_of(context.model),
        "mamba_chunk_size_is_explicit": bool(state_chunk(context.model)),
        "skip_decode_block_clamp": full_references(context.model),
        "bucket_file": file,
    }


def chunk_of(model: Model) -> int:
    """Return the tokens of a chunk of a model with states; 0 for others.

    One that config.json does not name is one block (hpu_model_runner.py).
    """
    return state_chunk(model) or (BLOCK if is_hybrid(model) else 0)


def state_chunk(model: Model) -> int:
    """Return the tokens of a chunk of a state that config.json states; 0 without."""
    if not is_hybrid(model):
        return 0
    text = text_part(model.config) or model.config_sizes
    found = text.get("mamba_chunk_size") or text.get("chunk_size") or 0
    if isinstance(found, int) and 0 < found < 1 << 20:
        return found
    return 0
