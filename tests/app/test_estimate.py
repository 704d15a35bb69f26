"""Predictions for plans and for services by their records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.app.estimate import EstimateOptions, of_record, read
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.models.sizing import weight_bytes_per_card
from gaudi_launch.performance.prediction import Load
from tests.support.refusals import refused

LOAD = Load("concurrency", 1024, 256, 32)
RECORD: dict[str, Any] = {
    "engine": {"name": "vllm-fork", "version": "1.22"},
    "model": {"path": "meta-llama/Llama-3.1-8B-Instruct"},
    "dtype": "bfloat16",
    "modules": [0],
}


def test_a_service_is_predicted_by_its_record() -> None:
    found = of_record(RECORD, LOAD)
    assert found is not None
    assert (found.case.setup.cards, found.case.setup.engine, found.case.setup.math) == (
        1,
        "v0",
        "bf16",
    )


def test_more_cards_have_faster_prompts() -> None:
    # behind a server on Gaudi2 two all-reduces of each layer eat what a small model's steps gain
    one, four = of_record(RECORD, LOAD), of_record({**RECORD, "modules": [0, 1, 2, 3]}, LOAD)
    assert one is not None and four is not None
    assert 1.5 * four.prediction.ttft.expected < one.prediction.ttft.expected
    assert four.prediction.throughput.expected > one.prediction.throughput.expected


@pytest.mark.parametrize(
    "change",
    [
        {"modules": []},
        {"engine": {"name": "cpu", "version": "1"}},
        {"engine": {"name": "gone", "version": "1"}},
        {"model": {"path": "not-known"}},
        {"dtype": "mxfp4"},
        {"engine": None},
    ],
)
def test_a_record_that_does_not_say_enough_is_not_predicted(change: dict[str, Any]) -> None:
    assert of_record({**RECORD, **change}, LOAD) is None


# --- options -------------------------------------------------------------------------------------


LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
MIXTRAL = "mistralai/Mixtral-8x7B-Instruct-v0.1"
GAUDI2 = EstimateOptions(accelerator="gaudi2")
MOST = 4096


def outside(flag: str, found: str, most: int) -> tuple[str, dict[str, Any]]:
    return "plan.number", {"flag": flag, "found": found, "least": 1, "most": most}


@pytest.mark.parametrize(
    ("given", "id", "values"),
    [
        ({"moe": "half"}, "estimate.moe", {"found": "half"}),
        ({"outputs": "1"}, "estimate.short", {"found": 1}),
        ({"static": True, "rate": "1/s"}, "estimate.one_load", {}),
        ({"concurrency": "2", "batch": "2"}, "estimate.one_load", {}),
        ({"software": "new"}, "estimate.release", {"found": "new"}),
        ({"cards": "3"}, "estimate.uneven", {"cards": 3, "heads": 32}),
        ({"batch": "0"}, *outside("-b", "0", MOST)),
        ({"batch": "4097"}, *outside("-b", "4097", MOST)),
        ({"concurrency": "4097"}, *outside("--concurrency", "4097", MOST)),
        ({"concurrency": "0"}, *outside("--concurrency", "0", MOST)),
        ({"cards": "1025"}, *outside("-n", "1025", 1024)),
        ({"inputs": "0"}, *outside("-i", "0", 1 << 24)),
        ({"outputs": "x"}, *outside("-o", "x", 1 << 24)),
        (
            {"accelerator": "gaudi1"},
            "estimate.accelerator",
            {"found": "gaudi1", "known": "gaudi2, gaudi2d, gaudi2e, gaudi3, gaudi3-pcie"},
        ),
    ],
)
def test_options_that_cannot_be_are_refused(
    given: dict[str, Any], id: str, values: dict[str, Any]
) -> None:
    if id == "estimate.accelerator":
        values["known"] = ", ".join(
            each for each in accelerators() if each.startswith(("gaudi2", "gaudi3"))
        )
    with refused(id, ExitCode.USAGE, **values):
        read(LLAMA, replace(GAUDI2, **given))


@pytest.mark.parametrize(
    ("given", "load"),
    [
        ({}, Load("concurrency", 1024, 256, 32)),
        ({"batch": "4", "inputs": "2k", "outputs": "10"}, Load("concurrency", 2000, 10, 4)),
        ({"static": True}, Load("static", 1024, 256, 32)),
        ({"concurrency": "7"}, Load("concurrency", 1024, 256, 7)),
        ({"rate": "120/m"}, Load("rate", 1024, 256, 256, 2.0)),
        ({"rate": "2/s", "batch": "9"}, Load("rate", 1024, 256, 9, 2.0)),
    ],
)
def test_a_load_is_one_of_four(given: dict[str, Any], load: Load) -> None:
    case = read(LLAMA, replace(GAUDI2, **given))
    assert replace(case.load, room=0) == load


def test_the_setup_is_that_of_the_product_and_the_engine() -> None:
    one = read(LLAMA, replace(GAUDI2, engine="vllm-gaudi"))
    assert (one.accelerator and one.accelerator.id, one.hardware, one.engine, one.dtype) == (
        "gaudi2",
        "gaudi2",
        "vllm-gaudi",
        "bfloat16",
    )
    assert (one.setup.engine, one.setup.math, one.setup.weight_bytes, one.setup.kv_bytes) == (
        "v1",
        "bf16",
        2.0,
        2.0,
    )
    assert one.setup.step_tokens > 0 and (one.measured, one.old, one.experts) == (True, False, "")
    fork = read(LLAMA, replace(GAUDI2, engine="vllm-fork@1.22", dtype="fp8", cards="2"))
    assert (fork.setup.engine, fork.setup.math, fork.setup.weight_bytes, fork.setup.cards) == (
        "v0",
        "fp8",
        1.0,
        2,
    )
    assert (fork.setup.kv_bytes, fork.setup.step_tokens) == (1.0, 0)
    static = read(LLAMA, replace(GAUDI2, static=True, dtype="fp8"))
    assert (static.setup.engine, static.engine, static.setup.kv_bytes) == ("static", "", 1.0)


def test_what_is_extrapolated_is_noted() -> None:
    def ids(model: str = LLAMA, **given: Any) -> list[str]:
        return [note.id for note in read(model, replace(GAUDI2, **given)).notes]

    assert ids() == []
    other = read(LLAMA, replace(GAUDI2, accelerator="gaudi2e"))
    assert (other.measured, other.setup.generation) == (False, "gaudi2")
    assert dict(other.notes[0].values) == {"product": "gaudi2e", "generation": "gaudi2"}
    assert ids(cards="16") == ["estimate.several_servers"]
    assert ids(software="1.10") == ["estimate.old"] and ids(software="v1.24.1-9") == []
    assert read(LLAMA, replace(GAUDI2, software="1.10")).old
    known = "engines.known_problem"
    assert ids(MIXTRAL, cards="8", moe="unfused") == ["estimate.unfused", known]
    assert not read(MIXTRAL, replace(GAUDI2, cards="8", moe="unfused")).setup.fused
    assert read(MIXTRAL, replace(GAUDI2, cards="8", moe="fused")).setup.fused


def test_a_batch_is_limited_by_the_memory_of_the_cards() -> None:
    served = read(LLAMA, replace(GAUDI2, batch="4096", inputs="8000"))
    [note] = served.notes
    assert (note.id, note.values["batch"]) == ("estimate.batch_too_large", 4096)
    assert 1 < served.load.room == note.values["fit"] < 4096
    # a rate needs no room for all that may come
    rated = read(LLAMA, replace(GAUDI2, rate="1/s", batch="4096", inputs="8000"))
    assert (rated.notes, rated.load.room) == ((), 0)
    static = read(LLAMA, replace(GAUDI2, static=True, batch="4096", inputs="8000"))
    [note] = static.notes
    each = 2 * 32 * 8 * 128 * 2 * (8000 + 256)
    product = accelerators()["gaudi2"]
    weights = weight_bytes_per_card(static.model, 1, "bfloat16")
    assert weights is not None
    fit = int((product.usable_bytes - weights) // each)
    assert dict(note.values) == {"batch": 4096, "fit": fit}
    assert read(LLAMA, replace(GAUDI2, static=True, batch=str(fit), inputs="8000")).notes == ()
    large = read("meta-llama/Llama-3.1-70B-Instruct", replace(GAUDI2, static=True))
    assert [note.id for note in large.notes] == ["estimate.weights_too_large"]
    weights = weight_bytes_per_card(large.model, 1, "bfloat16")
    assert weights is not None
    assert dict(large.notes[0].values) == {
        "weights": f"{weights / (1 << 30):.0f}",
        "usable": f"{product.usable_bytes / (1 << 30):.0f}",
    }


def test_a_simulated_service_is_not_predicted() -> None:
    engine = {**RECORD["engine"], "simulated": True}
    assert of_record({**RECORD, "engine": engine}, LOAD) is None


def test_a_recorded_service_keeps_the_tokens_of_a_step() -> None:
    settings = [{"name": "--max-num-batched-tokens", "value": "4096"}]
    plugin = {**RECORD, "engine": {"name": "vllm-gaudi", "version": "0"}, "settings": settings}
    found = of_record(plugin, LOAD)
    assert found is not None
    assert (found.case.setup.step_tokens, found.case.setup.prompt_tokens) == (4096, 0)
    fp8 = of_record({**RECORD, "dtype": "fp8"}, LOAD)
    assert fp8 is not None
    assert (fp8.case.setup.kv_bytes, fp8.case.setup.weight_bytes) == (1.0, 1.0)
    assert (fp8.case.software, fp8.case.dtype, fp8.case.engine) == ("", "fp8", "vllm-fork@1.22")
