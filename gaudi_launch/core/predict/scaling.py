"""Step times of a model on cards as straight lines, for planner and simulator.

The constants are those of `gaudi_launch.core.predict.step_model`, which is fitted to published
figures. Where it bends (short prompts are bound by reading weights) a line goes through two points:
`_PROMPTS` tokens of prefill and `_BATCHES` sequences of decode. A mixture reads more experts with
more tokens: the deviation of its decode steps from the line is kept for each batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.accelerators import Accelerator
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.stages import most_layers
from gaudi_launch.core.predict.experts import chosen_experts
from gaudi_launch.core.predict.learned import learned_for, values
from gaudi_launch.core.predict.loads import StepModel
from gaudi_launch.core.predict.loads import steps as steps_of
from gaudi_launch.core.predict.pipeline import Stages, over_stages
from gaudi_launch.core.predict.published import shapes
from gaudi_launch.core.predict.shape import Shape, shape_of
from gaudi_launch.core.predict.step_model import Engine, Generation, Setup, amounts_of, rates_of
from gaudi_launch.core.predict.step_time import StepTime

_BLOCK = 128
_PROMPTS = (256, 2048)
_BATCHES = (8, 128)
# batches whose deviation from the line is kept; beyond, all experts are read
_BENT = 512
_MILLISECONDS = 1000.0
# what an unknown model is taken for, by its number of parameters
_FAMILY = ("Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")


@dataclass(frozen=True)
class Speed:
    """Step times with what had to be assumed for them."""

    cost: StepTime
    setup: Setup
    shape: Shape
    notes: Sequence[Message] = ()
    measured: bool = True


def step_time(
    model: Model,
    cards: int,
    dtype: str,
    accelerator: Accelerator,
    kv_dtype: str = "auto",
    engine: Engine = "v0",
) -> Speed:
    """Return the step times (ms) of ``model`` in ``dtype`` on cards of one product."""
    notes: list[Message] = []
    generation = generation_of(accelerator)
    if (
        accelerator.bandwidth_gb_s is None
        or accelerator.peak_tflops_bf16 is None
        or generation != accelerator.id
    ):
        notes.append(message("capacity.assume_card", card=accelerator.id, other=generation))
    shape, title = known_shape(model)
    fused, gather = chosen_experts(model.model_type or model.name, engine)
    setup = Setup(
        generation=generation,
        cards=max(1, cards),
        math="fp8" if dtype == "fp8" else "bf16",
        weight_bytes=sizing.WEIGHT_BYTES.get(dtype, 2.0),
        kv_bytes=float(sizing.KV_BYTES.get(kv_dtype, 2)),
        engine=engine,
        fused=fused,
        gather=gather,
        hosts=max(1, -(-cards // accelerator.cards)),
    )
    kind = {"bfloat16": "bf16", "float16": "bf16"}.get(dtype, dtype)
    basis = f"{title} {kind}, {setup.cards} x {generation}"
    measured = not notes
    learned = learned_for(generation)
    if learned is not None:
        count = len(learned.measurements)
        notes.append(message("learn.used", version=learned.version, count=count))
    return Speed(_lines(setup, shape, basis), setup, shape, tuple(notes), measured=measured)


def speed_of(setup: Setup, shape: Shape) -> Speed:
    """Return the step times of a setup that is known."""
    return Speed(_lines(setup, shape, ""), setup, shape)


def with_stages(speed: Speed, model: Model, stages: int) -> Speed:
    """Return the step times of one of as many virtual engines as pipeline stages.

    ``speed`` is that of the complete model on the cards of one stage.
    """
    divided = Stages(stages, most_layers(model, stages))
    cost = over_stages(speed.cost, divided, speed.setup, speed.shape, values())
    return replace(speed, cost=cost)


def generation_of(accelerator: Accelerator) -> Generation:
    """Return the generation whose figures a product takes.

    The first Gaudi has none and takes Gaudi2's.
    """
    if accelerator.id.startswith("gaudi3"):
        return "gaudi3"
    return "gaudi2"


def _lines(setup: Setup, shape: Shape, basis: str) -> StepTime:
    # a prompt in one step: what chunks of it cost more is `prefill_masked`
    setup = replace(setup, step_tokens=0)
    made = steps_of(setup, shape, values())
    amounts, rates = amounts_of(setup, shape), rates_of(setup, shape, values())
    attention = float(amounts.attention / (rates.peak_bf16 * rates.attention_share))

    def plain(tokens: int) -> float:
        """Return the seconds of one prompt without its attention."""
        return float(made.prefill(1, tokens).total) - attention * tokens**2

    short, long = _PROMPTS
    token = (plain(long) - plain(short)) / (long - short)
    few, many = _BATCHES
    one = float(made.decode(few, 0).total)
    sequence = (float(made.decode(many, 0).total) - one) / (many - few)
    block = float(made.decode(1, _BLOCK).total - made.decode(1, 0).total)
    # block lists of the plugin, which computes one prompt at a time
    is_masked = setup.engine == "v1" and not setup.prompt_tokens
    bend: tuple[float, ...] = ()
    if 0 < amounts.share < 1 and shape.experts:
        bend = _bend(made, one - sequence * few, sequence)
    return StepTime(
        prefill_fixed=_MILLISECONDS * max(0.0, plain(short) - token * short),
        prefill_token=_MILLISECONDS * token,
        prefill_attention=_MILLISECONDS * attention,
        prefill_masked=values()["attention.masked"] if is_masked else 0.0,
        decode_fixed=_MILLISECONDS * (one - sequence * few),
        decode_sequence=_MILLISECONDS * sequence,
        decode_block=_MILLISECONDS * block,
        basis=basis,
        bend=bend,
    )


def _bend(made: StepModel, fixed: float, sequence: float) -> tuple[float, ...]:
    """Return the milliseconds of decode steps above the line, by sequences."""
    import numpy as np

    batches = np.arange(1, _BENT + 1, dtype=np.float64)
    above = _MILLISECONDS * (made.decode(batches, 0).total - fixed - sequence * batches)
    return (0.0, *above.tolist())


def known_shape(model: Model) -> tuple[Shape, str]:
    """Return the sizes of ``model`` and its name.

    Where the sizes are not known, they are those of the Llama nearest in parameters.
    """
    shape = shape_of(model)
    if shape is not None:
        return shape, model.name
    parameters = float(model.parameters or _parameters_of(model.name) or 0.0)
    known = {name: shapes()[name] for name in _FAMILY}
    if not parameters:
        return known[_FAMILY[0]], _FAMILY[0]

    def apart(name: str) -> float:
        return abs(known[name].parameters - parameters)

    name = min(_FAMILY, key=apart)
    nearest = known[name]
    scale = parameters / nearest.parameters
    scaled = replace(nearest, body=nearest.body * scale, head=nearest.head * scale)
    return scaled, f"{name} x {scale:.2g}"


def _parameters_of(name: str) -> float | None:
    """Return the number of parameters that a name such as QwQ-32B states."""
    words = name.replace("-", " ").replace("_", " ")
    found = re.search(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z0-9])", words)
    if not found:
        return None
    return float(found.group(1)) * 1e9
