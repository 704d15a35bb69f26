"""Any length is planned with a bucket for each shape, or refused with a remedy that works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.buckets.coverage import prove
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import Draft, buckets_of, draft, place
from gaudi_launch.core.planning.request import Request
from tests.support.plans import planned

LONGEST = 40960
# -o, -i and -t are not options of deepseek_r1's script; it ends at 32768 tokens
ENGINES = (
    "vllm-fork@1.21",
    "vllm-fork@1.22",
    "vllm-gaudi",
    "deepseek_r1",
    "tgi@3.2.3",
    "tgi@3.3.5",
    "cpu",
)
PRODUCTS = ("hls2", "gaudi2e-8", "gaudi3-oam", "gaudi3-pcie")


def wishes_of(engine: str, length: int, **given: Any) -> dict[str, Any]:
    return {"engine": engine, "max_model_len": length, "machine": "hls2", **given}


# the option that a refusal names, and what to give instead
REMEDIES: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], Any]]] = {
    "gaudi.unchunked_tokens": ("-t", "max_num_batched_tokens", lambda found: found["length"]),
    "gaudi.tokens_below_seqs": ("-t", "max_num_batched_tokens", lambda found: found["seqs"]),
    "plan.input_over_length": ("-i", "input_range", lambda found: (1, found["length"] - 1)),
    "plan.deepseek_too_long": ("-l", "max_model_len", lambda found: found["longest"]),
    "plan.too_long": ("-l", "max_model_len", lambda found: found["longest"]),
}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Return an engine, a product and lengths, most of them no complete blocks."""
    engine = draw(st.sampled_from(sorted(ENGINES)))
    ranged, tgi = engine != "deepseek_r1", engine.startswith("tgi")
    # the plugin's own ladders have no context in one block
    shortest = 129 if tgi or engine == "vllm-gaudi" else 1
    length = draw(st.integers(shortest, LONGEST if tgi else 45000))
    asked: dict[str, Any] = {"engine": engine, "max_model_len": length, "machine": "hls2"}
    if tgi:
        return asked
    if ranged:
        asked["machine"] = draw(st.sampled_from(PRODUCTS))
    optional: dict[str, st.SearchStrategy[Any]] = {"max_num_seqs": st.integers(1, 300)}
    if engine != "cpu":
        optional["reduce"] = st.tuples(st.integers(1, 200), st.integers(1, 2 * LONGEST))
    if ranged:
        longest_input = st.one_of(st.integers(65, 45000), st.just(length))
        optional["input_range"] = st.tuples(st.integers(1, 64), longest_input)
        optional["output_range"] = st.tuples(st.integers(1, 64), st.integers(65, 45000))
        optional["max_num_batched_tokens"] = st.one_of(st.integers(1, 2 * LONGEST), st.just(length))
    for name, values in optional.items():
        if draw(st.booleans()):
            asked[name] = draw(values)
    return asked


@settings(deadline=None, max_examples=16)
@given(requests())
@example({"engine": "vllm-fork@1.21", "max_model_len": 24000, "machine": "gaudi2e-8"})
# 32 rows of this length, the examples' batch, are more than four cards hold
@example({"engine": "tgi@3.2.3", "max_model_len": 40001, "machine": "hls2"})
@example(wishes_of("vllm-fork@1.21", 9000, max_num_batched_tokens=9001))
@example(wishes_of("vllm-fork@1.21", 9000, max_num_batched_tokens=12001))
@example(wishes_of("vllm-fork@1.22", 300, input_range=(64, 1000)))
@example(wishes_of("vllm-gaudi", 8000, max_num_batched_tokens=8000))
@example(wishes_of("cpu", 8000, max_num_batched_tokens=128, max_num_seqs=256))
@example(wishes_of("vllm-fork@1.21", 1))
@example(wishes_of("vllm-fork@1.21", 100, max_num_batched_tokens=128, max_num_seqs=256))
def test_every_length_is_planned_and_covered_or_refused_with_a_remedy(
    asked: dict[str, Any],
) -> None:
    known: list[str] = []
    drawn = None
    while drawn is None:
        try:
            drawn = drafted(asked)
        except LaunchError as error:
            flag, name, instead = REMEDIES[error.id]
            assert error.id not in known and name in asked and flag in error.text.render()
            known.append(error.id)
            asked = {**asked, name: instead(error.text.values)}
    limits, engine = drawn.context.limits, find(asked["engine"])
    assert asked["max_model_len"] <= limits.max_model_len <= LONGEST
    assert asked.get("max_num_batched_tokens", 0) <= limits.max_num_batched_tokens
    if asked["engine"].startswith("vllm-fork"):
        # the forks compute complete blocks
        assert limits.max_num_batched_tokens % 128 == 0
    assert asked.get("input_range", (1, 1))[1] <= limits.input_max
    if asked["engine"] == "cpu":
        return
    found = buckets_of(engine, drawn.settings, drawn.context, [], drawn.memory.num_blocks)
    question = engine.question(drawn.settings, drawn.context, drawn.memory.num_blocks)
    assert found is not None and question is not None
    if engine.identity.name != "tgi":
        # TGI's own warm-up is not planned here
        prove(found[1], question.limits)
        most, blocks = max(each[2] for each in found[1].decode), drawn.memory.num_blocks or 1
        # the engine's own cut: sequences may share blocks (`most_blocks` of the plugin)
        assert most <= max(3 * blocks, limits.max_num_seqs)
    batch, hot = drawn.context.request.reduce or (1, 1)
    assert batch <= limits.max_num_seqs and hot <= limits.max_model_len


def drafted(asked: Mapping[str, Any]) -> Draft:
    """Return the settings of these lengths for QwQ-32B."""
    engine = find(asked["engine"])
    wishes = {name: each for name, each in asked.items() if name != "machine"}
    cards = 8 if asked["engine"] == "deepseek_r1" else 4
    request = Request(model="Qwen/QwQ-32B", cards=cards, files_dir="/files", **wishes)
    model, host = known_model(request.model, must_exist=False), make(asked["machine"])
    return draft(request, host, model, engine, place(request, host, engine))


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
