"""The clock of simulated cards: buckets, seconds of a step, and how late the host was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from gaudi_launch.extensions.simulated.engine import RUNTIME
from tests.support.bucket_parity import recorded_files, records

if TYPE_CHECKING:
    from gaudi_simulated_card import CardSettings


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(RUNTIME))
    yield


def settings(**changes: Any) -> CardSettings:
    from gaudi_simulated_card import CardSettings

    made = CardSettings(
        cost=ONE_CARD_8B.constants(),
        prompt=((1, 128, 0), (1, 512, 0), (1, 512, 4), (4, 512, 0)),
        decode=((1, 1, 128), (8, 1, 128), (8, 1, 512)),
        graph_seconds=2.0,
        block_size=128,
        max_num_seqs=8,
        max_num_batched_tokens=2048,
        max_model_len=4096,
        prefill_batch=1,
        token_step=32,
        contiguous=False,
        warmed=True,
        time_scale=1.0,
    )
    return replace(made, **changes)


def test_a_part_of_a_prompt_counts_the_blocks_before_it() -> None:
    from gaudi_simulated_card import Prompt, StepPricer

    price = StepPricer(settings()).price([Prompt(300, 400)], 0, 0)
    assert price[0] == pytest.approx(ONE_CARD_8B.in_blocks(1, 512, 4) / 1000)


def test_prompts_without_context_share_a_forward_where_the_plan_allows_it() -> None:
    from gaudi_simulated_card import Prompt, StepPricer

    merging = settings(prefill_batch=4)
    fresh = [Prompt(100, 0), Prompt(300, 0)]
    together = StepPricer(merging).price(fresh, 0, 0)[0]
    assert together == pytest.approx(ONE_CARD_8B.chunk(4, 512, 0) / 1000)
    # a part of a prompt after its context is alone (_can_merge_prefill_contents)
    continued = StepPricer(merging).price([Prompt(100, 0), Prompt(300, 400)], 0, 0)[0]
    assert continued == pytest.approx(
        (ONE_CARD_8B.chunk(1, 128, 0) + ONE_CARD_8B.in_blocks(1, 512, 4)) / 1000
    )
    apart = (ONE_CARD_8B.chunk(1, 128, 0) + ONE_CARD_8B.chunk(1, 512, 0)) / 1000
    assert StepPricer(merging, single_prompts=True).price(fresh, 0, 0)[0] == pytest.approx(apart)


def test_a_shape_outside_the_buckets_compiles_once_and_is_logged_as_the_plugin_does() -> None:
    from gaudi_simulated_card import Prompt, StepPricer

    pricer = StepPricer(settings())
    first = pricer.price([Prompt(700, 0)], 0, 0)
    assert first[1] == [
        "Prompt bucket for (1, 700, 0) was not prepared. Adding new bucket: (1, 864, 0)",
        "Configuration: ('prompt', 1, 864, 0) was not warmed-up!",
    ]
    assert first[0] == pytest.approx(ONE_CARD_8B.chunk(1, 864, 0) / 1000 + 2.0)
    again = pricer.price([Prompt(800, 0)], 0, 0)
    assert again[0] == pytest.approx(ONE_CARD_8B.chunk(1, 864, 0) / 1000)
    assert again[1] == []


def test_without_a_warm_up_each_bucket_compiles_at_its_first_use() -> None:
    from gaudi_simulated_card import StepPricer

    pricer = StepPricer(settings(warmed=False))
    cold, warm = pricer.price([], 1, 1), pricer.price([], 1, 1)
    assert cold[1] == ["Configuration: ('decode', 1, 1, 128) was not warmed-up!"]
    assert cold[0] - warm[0] == pytest.approx(2.0)


def test_without_buckets_shapes_are_not_padded() -> None:
    from gaudi_simulated_card import Prompt, StepPricer

    price = StepPricer(settings(prompt=(), decode=())).price([Prompt(77, 0)], 3, 10)
    expected = ONE_CARD_8B.chunk(1, 77, 0) + ONE_CARD_8B.decode(3, 10)
    assert price[0] == pytest.approx(expected / 1000)
    assert price[1] == []


# the sliced attention kernel is another mode, speculation has buckets of its own: neither is
# simulated
_OTHER_MODES = ("PT_HPU_SDPA_QKV_SLICE_MODE_FWD",)


def _lookups() -> Iterator[tuple[dict[str, Any], dict[str, Any], bool]]:
    """Yield each lookup of the plugin's code with its record, and whether it is the record's
    first."""
    for path in recorded_files():
        if not path.name.startswith("vllm-gaudi"):
            continue
        for record in records(path):
            inputs = record["inputs"]
            if inputs["args"].get("num_speculative_tokens") or set(_OTHER_MODES) & set(
                inputs["env"]
            ):
                continue
            if record.get("prompt_buckets") is None:
                continue
            for number, lookup in enumerate(record.get("lookups") or ()):
                yield record, lookup, number == 0


def test_lookups_are_those_of_the_plugins_code() -> None:
    from gaudi_simulated_card import PreparedBuckets

    compared, wrong = 0, []
    buckets = PreparedBuckets(settings())
    for record, lookup, is_first in _lookups():
        if is_first:
            args = record["inputs"]["args"]
            names = ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
            buckets = PreparedBuckets(
                settings(
                    prompt=tuple(map(tuple, record["prompt_buckets"])),
                    decode=tuple(map(tuple, record["decode_buckets"])),
                    token_step=max(32, args.get("mamba_chunk_size", 0)),
                    **{name: args[name] for name in names},
                )
            )
        if lookup["phase"] == "prompt":
            found = buckets.find_prompt(
                lookup["batch_size"], lookup["query_len"], lookup["ctx_blocks"]
            )
        else:
            found = buckets.find_decode(lookup["batch_size"], lookup["num_blocks"])
        compared += 1
        if (list(found.shape), bool(found.warning)) != (lookup["result"], lookup["fallback_added"]):
            wrong.append((record["inputs"], lookup, found))
    assert wrong == []
    assert compared > 500


class Time:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.thread = 0.0

    def clock(self, scale: float = 1.0) -> Any:
        from gaudi_simulated_card import CardClock

        return CardClock(scale, lambda: self.now, self.sleep, lambda: self.thread)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_steps_follow_each_other_without_the_hosts_time_between_them() -> None:
    time = Time()
    clock = time.clock()
    first = clock.begin(0.02, 1, continues=False)
    time.now += 0.003
    second = clock.begin(0.02, 1, continues=True)
    clock.wait(first)
    assert [time.now, second] == pytest.approx([100.02, 100.04])
    assert (clock.late, clock.is_true) == (0, True)


def test_the_time_scale_divides_each_step() -> None:
    clock = Time().clock(scale=10.0)
    assert clock.begin(0.02, 1, continues=False) == pytest.approx(100.002)


def test_a_step_that_the_host_sends_too_late_is_counted() -> None:
    time = Time()
    clock = time.clock()
    clock.begin(0.02, 1, continues=False)
    time.now += 0.03
    clock.begin(0.02, 1, continues=True)
    assert clock.behind == pytest.approx(0.01)
    assert (clock.late, clock.is_true) == (1, False)


def test_tokens_that_the_host_fetches_too_late_are_counted() -> None:
    time = Time()
    clock = time.clock()
    due = clock.begin(0.02, 1, continues=False)
    time.now += 0.025
    clock.wait(due)
    assert [clock.late, clock.behind] == pytest.approx([1, 0.005])


def test_the_record_has_the_hosts_milliseconds_by_batch() -> None:
    time = Time()
    clock = time.clock()
    for spent in (0.0, 0.001, 0.003):
        time.thread += spent
        clock.begin(0.02, 100, continues=time.thread > 0)
    assert clock.record() == {
        "schema": 1,
        "steps": 3,
        "late_steps": 0,
        "busy_seconds": 0.06,
        "behind_seconds": 0.0,
        "real_time": True,
        "time_scale": 1.0,
        "batches": {"128": {"steps": 2, "host_ms": 2.0, "longest_ms": 3.0}},
    }
