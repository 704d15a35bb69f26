"""Arithmetic of tokens, blocks and batches, rounded as the start scripts do."""

from __future__ import annotations

from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Limits
from gaudi_launch.core.planning.passthrough import written
from gaudi_launch.core.planning.request import Request

BLOCK = 128
"""Tokens of one KV block on HPU in every engine version."""


_OUTPUT = 2048
"""Longest output of the scripts' -o: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh."""


@dataclass(frozen=True)
class LengthRules:
    """The rules of an engine release about lengths and steps.

    ``length``, ``seqs``, ``inputs`` and ``outputs`` are used where the user gives none. By default
    a step has ``step`` tokens or more, and a complete context if ``whole``, in multiples of
    ``step_of``. ``splits``: the engine computes a context in several steps. ``answers``: the model
    writes text. Lengths are multiples of ``block`` where the model allows. ``prefill_seqs`` None:
    as many as requests.
    """

    length: int
    seqs: int
    step: int = 1
    whole: bool = True
    splits: bool = False
    answers: bool = True
    inputs: tuple[int, int] | None = None
    outputs: tuple[int, int] | None = None
    prefill_seqs: int | None = 1
    step_of: int = BLOCK
    block: int = BLOCK


def limits_within(rules: LengthRules, request: Request, model: Model) -> Limits:
    """Return the lengths, requests and tokens of a step of a server.

    Raises LaunchError for lengths that the model lacks (MODEL), inputs that do not fit, and steps
    with which the engine stops at startup (USAGE): HabanaAI/vllm-fork@277a33cd9:vllm/config.py
    SchedulerConfig._verify_args, vllm-project/vllm@v0.26.0:vllm/config/scheduler.py
    verify_max_model_len.
    """
    length = length_for(rules, request, model)
    seqs = request.max_num_seqs or rules.seqs
    tokens = _tokens(rules, request, length, seqs)

    def refusal(id: str) -> LaunchError:
        flags = {"option": "-t", "requests": "-b", "context": "-l"}
        names = {name: written(request.args, flag) for name, flag in flags.items()}
        return LaunchError(id, ExitCode.USAGE, tokens=tokens, seqs=seqs, length=length, **names)

    if tokens < seqs:
        raise refusal("gaudi.tokens_below_seqs")
    if tokens < length and not rules.splits:
        raise refusal("gaudi.unchunked_tokens")
    input_min, input_max = _inputs(rules, request, length)
    output_min, output_max = request.output_range or rules.outputs or (1, length)
    return Limits(
        input_min=min(input_min, input_max),
        input_max=input_max,
        output_min=min(output_min, length),
        output_max=min(output_max, length),
        max_model_len=length,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        max_num_prefill_seqs=request.max_prefill_seqs or rules.prefill_seqs or seqs,
    )


def _inputs(rules: LengthRules, request: Request, length: int) -> tuple[int, int]:
    """Return the range of inputs, within the length.

    The usual one reaches a hot length. Raises LaunchError (USAGE) for a longer one.
    """
    least, most = request.input_range or rules.inputs or (1, length)
    longest = length - 1 if rules.answers else length
    if request.input_range is not None and most > longest:
        raise LaunchError(
            "plan.input_over_length",
            ExitCode.USAGE,
            input=most,
            length=length,
            option=written(request.args, "-l"),
        )
    if request.input_range is None and rules.inputs is not None:
        _, hot = request.reduce or (0, 0)
        most = max(1, min(max(most, hot), longest))
    return least, most


def _tokens(rules: LengthRules, request: Request, length: int, seqs: int) -> int:
    """Return the tokens of a step, which a rounded length does not exceed."""
    given, asked = request.max_num_batched_tokens, request.max_model_len
    if given is None:
        least = length if rules.whole else 1
        return round_up(max(rules.step, least, round_up(seqs, BLOCK)), rules.step_of)
    if request.args.has("--max-num-batched-tokens"):
        # it reaches the engine unchanged
        return given
    if asked is not None and given >= asked:
        given = max(given, length)
    return round_up(given, rules.step_of)


def length_for(rules: LengthRules, request: Request, model: Model) -> int:
    """Return the maximum of input plus output, in blocks where the model allows.

    Without -l the engine's default, or longer requests that -i, -o and -r name. Raises LaunchError
    (MODEL) for one above the model's positions.
    """
    longest, asked = model.max_position_embeddings, request.max_model_len
    stated = asked or _of_ranges(request, answers=rules.answers)
    allowed = request.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "") in ("1", "true")
    if longest and stated > longest and not (request.force or allowed):
        raise LaunchError(
            "plan.too_long",
            ExitCode.MODEL,
            found=stated,
            longest=longest,
            source=model.source,
            option=written(request.args, "-l"),
        )
    rounded = round_up(stated, rules.block)
    # an engine option after -- reaches the engine unchanged, and may be less than rounded tokens
    after = request.args.has("--max-model-len", "--max-num-batched-tokens")
    if after or (longest and rounded > longest):
        rounded = stated
    if asked is not None:
        return rounded
    usual = max(rules.length, _of_hot(request))
    if longest:
        usual = min(usual, round_down(longest, BLOCK) or longest)
    return max(usual, rounded)


def reason_for(asked: Request, length: int) -> Message | None:
    """Return the reason of a length that -i, -o or -r decided because no -l is given."""
    if asked.max_model_len is not None:
        return None
    if length == round_up(_of_ranges(asked), BLOCK):
        return message("plan.length_of_ranges")
    if length == _of_hot(asked):
        return message("plan.length_of_hot")
    return None


def _of_ranges(asked: Request, *, answers: bool = True) -> int:
    """Return the longest request of -i and -o; 0 without."""
    _, inputs = asked.input_range or (0, 0)
    _, outputs = asked.output_range or (0, 0)
    if not inputs and not outputs:
        return 0
    return inputs + max(outputs, int(answers))


def _of_hot(asked: Request) -> int:
    """Return the longest request of -r, in complete blocks; 0 without."""
    if asked.reduce is None:
        return 0
    _, outputs = asked.output_range or (0, _OUTPUT)
    return round_up(asked.reduce[1] + max(outputs, 1), BLOCK)


def ceil_div(number: int, divisor: int) -> int:
    """
    >>> ceil_div(800, 128)
    7
    """
    return -(-number // divisor)


def round_up(number: int, step: int) -> int:
    """
    >>> round_up(24000, 128)
    24064
    """
    return ceil_div(number, step) * step


def round_down(number: int, step: int) -> int:
    """
    >>> round_down(24000, 128)
    23936
    """
    return number // step * step
