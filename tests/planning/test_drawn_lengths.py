"""Any length that the engine takes is planned, and each of its shapes has a bucket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gaudi_launch.buckets.coverage import prove
from gaudi_launch.engines.registry import find
from gaudi_launch.host.simulated import make
from gaudi_launch.planning.planner import buckets_of, draft, place
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.plans import planned

LONGEST = 40960
# -o, -i and -t are not options of deepseek_r1's script; it ends at 32768 tokens
ENGINES = {
    "vllm-fork@1.21": LONGEST,
    "vllm-fork@1.22": LONGEST,
    "vllm-gaudi": LONGEST,
    "deepseek_r1": 32768,
    "tgi@3.2.3": LONGEST,
    "tgi@3.3.5": LONGEST,
}
PRODUCTS = ("hls2", "gaudi2e-8", "gaudi3-oam", "gaudi3-pcie")


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Return an engine, a product and lengths, most of them no complete blocks."""
    engine = draw(st.sampled_from(sorted(ENGINES)))
    ranged = engine.startswith("vllm")
    length = draw(st.integers(129, ENGINES[engine]))
    asked: dict[str, Any] = {"engine": engine, "max_model_len": length, "machine": "hls2"}
    if ranged:
        asked["machine"] = draw(st.sampled_from(PRODUCTS))
    if not engine.startswith("tgi") and draw(st.booleans()):
        asked["reduce"] = (draw(st.integers(1, 200)), draw(st.integers(1, 2 * LONGEST)))
    if ranged and draw(st.booleans()):
        asked["input_range"] = (draw(st.integers(1, 64)), draw(st.integers(65, length - 1)))
    if ranged and draw(st.booleans()):
        asked["output_range"] = (draw(st.integers(1, 64)), draw(st.integers(65, length)))
    if ranged and draw(st.booleans()):
        asked["max_num_batched_tokens"] = draw(st.integers(max(length, 2048), 2 * LONGEST))
    return asked


@settings(deadline=None, max_examples=12)
@given(requests())
@example({"engine": "vllm-fork@1.21", "max_model_len": 8000, "machine": "hls2"})
@example({"engine": "vllm-fork@1.21", "max_model_len": 24000, "machine": "gaudi2e-8"})
# 32 rows of this length, the examples' batch, are more than four cards hold
@example({"engine": "tgi@3.2.3", "max_model_len": 40001, "machine": "hls2"})
@example(
    {
        "engine": "vllm-fork@1.21",
        "max_model_len": 9000,
        "max_num_batched_tokens": 9001,
        "machine": "hls2",
    }
)
def test_every_length_is_planned_and_covered(asked: dict[str, Any]) -> None:
    engine = find(asked["engine"])
    wishes = {name: each for name, each in asked.items() if name != "machine"}
    cards = 8 if asked["engine"] == "deepseek_r1" else 4
    request = Request(model="Qwen/QwQ-32B", cards=cards, files_dir="/files", **wishes)
    model, host = known_model(request.model, must_exist=False), make(asked["machine"])

    drawn = draft(request, host, model, engine, place(request, host, engine))
    found = buckets_of(engine, drawn.settings, drawn.context, [], drawn.memory.num_blocks)
    question = engine.question(drawn.settings, drawn.context, drawn.memory.num_blocks)

    assert found is not None and question is not None
    if engine.identity.name != "tgi":
        # TGI's own warm-up is not planned here
        prove(found[1], question.limits)
    assert asked["max_model_len"] <= drawn.context.limits.max_model_len
    batch, hot = drawn.context.request.reduce or (1, 1)
    assert batch <= drawn.context.limits.max_num_seqs
    assert hot <= drawn.context.limits.max_model_len


@pytest.mark.parametrize(
    ("engine", "model", "length"),
    [
        # 24000 and the scripts' longest output, in complete blocks
        ("vllm-gaudi", "Qwen/QwQ-32B", "26112"),
        ("vllm-fork@1.21", "Qwen/QwQ-32B", "26112"),
        ("vllm-fork@1.22", "Qwen/QwQ-32B", "26112"),
        # the model's own length
        ("vllm-gaudi", "Qwen/Qwen2.5-0.5B-Instruct", "26112"),
        ("vllm-gaudi", "meta-llama/Llama-2-7b-chat-hf", "4096"),
    ],
)
def test_a_hot_range_needs_its_length(engine: str, model: str, length: str) -> None:
    made, _ = planned(engine, model=model, cards=1, reduce=(8, 24000), force=True)
    found = {setting.name: setting for setting in made.settings}["--max-model-len"]
    beyond = [warning.values for warning in made.warnings if warning.id == "plan.reduce_beyond"]

    assert found.value == length
    if length == "26112":
        assert (found.reason.id, beyond) == ("plan.length_of_hot", [])
    else:
        limits = {"seqs": 128, "longest": 4096}
        assert beyond == [{"batch": 8, "length": 24000, "within": "8,4096", **limits}]
