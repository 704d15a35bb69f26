"""Step times of pipeline stages and of cards in several servers."""

from __future__ import annotations

from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.pipeline import Stages, over_stages
from gaudi_launch.core.predict.scaling import Speed, step_time, with_stages
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Setup
from gaudi_launch.core.predict.step_time import StepTime
from tests.support.records import near

LLAMA = known_model("meta-llama/Llama-3.1-405B-Instruct", False)
GAUDI2 = accelerators()["gaudi2"]


def decode(cards: int, stages: int = 1, batch: int = 16) -> float:
    cost = staged(cards, stages).cost
    return float(cost.decode(batch, 8 * batch))


def staged(cards: int, stages: int) -> Speed:
    return with_stages(step_time(LLAMA, cards, "bfloat16", GAUDI2), LLAMA, stages)


def test_a_virtual_engine_passes_all_stages() -> None:
    # as slow as the cards of one stage alone, and slower by what stages wait
    assert decode(8, 2) > decode(8) / Stages(2).busy
    assert decode(8, 2) < 1.1 * decode(8) / Stages(2).busy
    # 126 layers: four stages of at most 32
    assert decode(8, 4) / decode(8) > 128 / 126 / Stages(4).busy


def test_the_step_times_of_stages() -> None:
    cost = StepTime(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "one", (7.0, 8.0))
    setup = Setup("gaudi3", 2, "bf16", 2.0, 2.0, "v0")
    shape = Shape(4, 4, 1000, 1, 1, 1, 1, 1, 1)
    constants = {"pair.gaudi3": 4e6, "fixed.gaudi3": 0.003, "latency.served.gaudi3": 0.002}
    stages = Stages(3, 2.0)
    slower = 2.0 / 0.8
    # two hops of two messages and a launch: 7 ms; of 4000 bytes from two cards, sent and gathered
    waiting, sent = 2 * 7.0, 2 * 1000 * 4000 / 2 / 4e6 * 2
    assert over_stages(cost, stages, setup, shape, constants) == StepTime(
        prefill_fixed=near(slower * (1.0 + waiting)),
        prefill_token=near(slower * (2.0 + sent)),
        prefill_attention=near(slower * 3.0),
        decode_fixed=near(slower * (4.0 + waiting)),
        decode_sequence=near(slower * (5.0 + sent)),
        decode_block=near(slower * 6.0),
        basis="one x 3",
        bend=near((slower * 7.0, slower * 8.0)),
    )
    assert over_stages(cost, Stages(1, 2.0), setup, shape, constants) is cost
