"""Token arithmetic of TGI: lengths, concurrent requests, prefill, limits.

Sources: huggingface/text-generation-inference@v3.3.5: launcher/src/main.rs and
backends/v3/src/main.rs (the chain of checks), backends/gaudi/examples/docker_commands (the values
to start from), docs/source/backends/gaudi.mdx (image tokens, prefill budget).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.parse import MOST_SEQS, MOST_TOKENS
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.tgi.options import PADDED_VISION_TYPES, VISION_TYPES, paged

# docs/source/backends/gaudi.mdx: a LLaVA-1.6 image is about 2000 tokens, one of 512 x 512 is 2800
IMAGE_TOKENS = 2048
_IMAGE_512 = 2800
_MOST_LENGTHS = 4096


@dataclass(frozen=True)
class Tokens:
    """The token limits of TGI's launcher.

    --max-input-tokens, --max-total-tokens, --max-batch-size and --max-batch-prefill-tokens;
    ``given`` names those of the user, with the option.
    """

    input: int
    total: int
    batch: int
    prefill: int
    given: Mapping[str, str] = field(default_factory=dict)


def is_vision(model: Model) -> bool:
    return model.model_type in VISION_TYPES or "vision" in model.multimodal


def decide(
    request: Request,
    model: Model,
    cards: int,
    words: Mapping[str, str | None],
    *,
    most_rows: int | None = None,
    most_prefill: int | None = None,
) -> Tokens:
    """Return the four numbers: the user's, else those of the examples.

    The examples are 8B and LLaVA on one card, 70B on eight. ``words`` are the launcher options that
    the user wrote. ``most_rows`` and ``most_prefill`` are tokens that bound the examples' batch and
    prefill budget. Raises LaunchError (USAGE) for what the launcher or the router would stop on.
    """
    example = _example(vision=is_vision(model), cards=cards)
    user = _UserTokens(words)
    tokens, total = _lengths(user, request, model, example.input)
    batch = user.number("--max-batch-size", ("-b", request.max_num_seqs))
    if batch is None:
        batch = min(example.batch, max(1, (most_rows or MOST_TOKENS) // total))
    by_count = (request.max_prefill_seqs or 0) * tokens
    prefill = user.number(
        "--max-batch-prefill-tokens",
        ("-t", request.max_num_batched_tokens),
        ("--max-prefill-seqs", by_count or None),
    )
    if prefill is None:
        fitting = max(1, (most_prefill or MOST_TOKENS) // tokens)
        prefill = min(batch, example.prefill // example.input, fitting) * tokens
    found = Tokens(tokens, total, batch, prefill, user.given)
    _check(found)
    return found


@dataclass
class _UserTokens:
    """The numbers that the user gave.

    ``given`` has the option by which each launcher option was given. ``words`` are the launcher
    options that the user wrote.
    """

    words: Mapping[str, str | None]
    given: dict[str, str] = field(default_factory=dict)

    def number(self, option: str, *ours: tuple[str, int | None]) -> int | None:
        """Return the number of a launcher option, else of the first other option given."""
        text = self.words.get(option)
        if text is not None:
            self.given[option] = option
            return int(text)
        for flag, number in ours:
            if number is not None:
                self.given[option] = flag
                return number
        return None


def _lengths(user: _UserTokens, request: Request, model: Model, usual: int) -> tuple[int, int]:
    """Return the longest prompt, and the most tokens of a prompt with its answer."""
    positions = model.max_position_embeddings
    _, longest_input = request.input_range or (None, None)
    _, longest_output = request.output_range or (None, None)
    total = user.number("--max-total-tokens", ("-l", request.max_model_len))
    tokens = user.number("--max-input-tokens", ("-i", longest_input))
    if tokens is None:
        image = IMAGE_TOKENS + 1 if is_vision(model) else 0
        most = total if total or longest_output else positions
        tokens = _input_tokens(usual, most, longest_output, image)
    if total is not None:
        return tokens, total
    if longest_output:
        user.given["--max-total-tokens"] = "-o"
        return tokens, tokens + longest_output
    total = 2 * tokens
    if positions:
        total = max(min(total, positions), tokens + 1)
    return tokens, total


def _input_tokens(default: int, total: int | None, longest_output: int | None, image: int) -> int:
    if total is None:
        return default
    if longest_output:
        return max(1, total - longest_output)
    # half of the total, as in each of the examples, and an image where there is room for one
    return min(default, max(total // 2, min(image, total - 1)))


def _example(*, vision: bool, cards: int) -> Tokens:
    """Return the numbers of an example of TGI's documents."""
    if vision:
        return Tokens(input=4096, total=8192, batch=4, prefill=4 * 4096)
    if cards >= 8:
        return Tokens(input=1024, total=2048, batch=256, prefill=4 * 1024)
    return Tokens(input=1024, total=2048, batch=32, prefill=2 * 1024)


def _check(tokens: Tokens) -> None:
    for option, number, most in (
        ("--max-batch-size", tokens.batch, MOST_SEQS),
        ("--max-input-tokens", tokens.input, MOST_TOKENS),
        ("--max-total-tokens", tokens.total, MOST_TOKENS),
    ):
        if not 1 <= number <= most:
            flag = tokens.given.get(option, option)
            raise LaunchError(
                "plan.number", ExitCode.USAGE, flag=flag, found=number, least=1, most=most
            )
    if tokens.input >= tokens.total:
        raise LaunchError(
            "tgi.input_over_total", ExitCode.USAGE, input=tokens.input, total=tokens.total
        )
    if tokens.prefill < tokens.input:
        raise LaunchError(
            "tgi.prefill_short", ExitCode.USAGE, prefill=tokens.prefill, input=tokens.input
        )


def check_version(
    tokens: Tokens, version: str, model: Model, env: Mapping[str, str], force: bool
) -> list[Message]:
    """Apply the checks of this version's server; return the remaining warnings.

    Raises LaunchError.
    """
    warnings: list[Message] = []
    longest = model.max_position_embeddings
    # its launcher takes any total (text-generation-inference@009c4e0b:launcher/src/main.rs)
    if longest and tokens.total > longest:
        warnings.append(message("tgi.too_long", total=tokens.total, longest=longest))
    if not paged(version):
        _check_rows(tokens, env, vision=is_vision(model))
    if is_vision(model):
        warnings += _images(tokens, version, model, env, force)
    if tokens.prefill % tokens.input and "--max-batch-prefill-tokens" in tokens.given:
        prompts = tokens.prefill // tokens.input
        warnings.append(
            message(
                "tgi.prefill_uneven",
                prefill=tokens.prefill,
                input=tokens.input,
                prompts=prompts,
                even=(prompts + 1) * tokens.input,
            )
        )
    return warnings


def _check_rows(tokens: Tokens, env: Mapping[str, str], *, vision: bool) -> None:
    """Check the rows that v3.2.3 pads to (causal_lm.py). Raises LaunchError (USAGE).

    They have max_total_tokens each, for a batch rounded up to a power of the base; a vision model
    has as many as the batch.
    """
    base = int(env.get("BATCH_SIZE_EXPONENT_BASE", "2"))
    rows, usual_pad = 1, "256"
    while rows < tokens.batch:
        rows *= base
    if vision:
        rows, usual_pad = tokens.batch, "128"
    if tokens.prefill > rows * tokens.total:
        raise LaunchError(
            "tgi.prefill_over_rows",
            ExitCode.USAGE,
            prefill=tokens.prefill,
            rows=rows,
            total=tokens.total,
        )
    pad = int(env.get("PAD_SEQUENCE_TO_MULTIPLE_OF", usual_pad))
    if tokens.input // pad > _MOST_LENGTHS:
        raise LaunchError("tgi.pad_small", ExitCode.USAGE, pad=pad, count=tokens.input // pad)


def _images(
    tokens: Tokens, version: str, model: Model, env: Mapping[str, str], force: bool
) -> list[Message]:
    """Check that --max-input-tokens has room for the tokens of an image.

    mllama's images do not count as part of the prompt.
    """
    if model.model_type == "mllama":
        return []
    padded = not paged(version) and model.model_type in PADDED_VISION_TYPES
    image = IMAGE_TOKENS
    if padded:
        image = int(env.get("BASE_IMAGE_TOKENS", str(IMAGE_TOKENS)))
    if tokens.input <= image and not force and (padded or model.model_type == "llava_next"):
        raise LaunchError("tgi.image_tokens", ExitCode.USAGE, input=tokens.input, image=image)
    if model.model_type == "llava_next":
        if tokens.input > _IMAGE_512:
            return []
        return [message("tgi.image_512", input=tokens.input, image=_IMAGE_512)]
    return [message("tgi.image_unknown", type=model.model_type or model.name, input=tokens.input)]
