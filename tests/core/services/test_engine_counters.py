"""What two pages of an engine's metrics say about the time between."""

from __future__ import annotations

from gaudi_launch.core.services.engine_counters import EngineCounters, EngineRates, rates


def test_nothing_is_said_of_what_is_not_known() -> None:
    full = EngineCounters(generated=600, ttft_sum=4, ttft_count=8)
    assert rates(EngineCounters(), full, 10) == EngineRates()
    # the engine restarted: its counters began again
    assert rates(full, EngineCounters(generated=5, ttft_sum=1, ttft_count=1), 10) == EngineRates()
    # no request came: the rate is a measured 0, a mean of no request is unknown
    assert rates(full, full, 10) == EngineRates(tokens_per_second=0.0)
    assert rates(full, full, 0) == EngineRates()
