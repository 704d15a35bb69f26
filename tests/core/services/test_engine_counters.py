"""What two pages of an engine's metrics say about the time between."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.services.engine_counters import (
    EngineCounters,
    EngineRates,
    rates,
    read_counters,
)
from gaudi_launch.core.services.metrics import EngineLoad, load_of


def test_nothing_is_said_of_what_is_not_known() -> None:
    full = EngineCounters(generated=600, ttft_sum=4, ttft_count=8)
    assert rates(EngineCounters(), full, 10) == EngineRates()
    # the engine restarted: its counters began again
    assert rates(full, EngineCounters(generated=5, ttft_sum=1, ttft_count=1), 10) == EngineRates()
    # no request came: the rate is a measured 0, a mean of no request is unknown
    assert rates(full, full, 10) == EngineRates(tokens_per_second=0.0)
    assert rates(full, full, 0) == EngineRates()


LOAD_PAGE = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (LOAD_PAGE, EngineLoad(3, 4)),
        ("tgi_queue_size 5\n", EngineLoad(0, 5)),
        ("tgi_batch_current_size 6\n", EngineLoad(6, 0)),
        ("tgi_batch_current_size -1\ntgi_queue_size 1e12\n", EngineLoad(0, 0)),
        ("other 1\n", None),
    ],
)
def test_a_page_names_the_requests_of_all_engines(page: str, load: EngineLoad | None) -> None:
    assert mapped(load_of, read_counters(page)) == load
