"""Energy from measured power."""

from __future__ import annotations

from gaudi_launch.watch.energy_count import EnergyCount
from gaudi_launch.watch.sample import HostSample, ServiceSample


def host(at: float, **watts: float | None) -> HostSample:
    services = tuple(
        ServiceSample(name, "ready", True, power_w=power) for name, power in watts.items()
    )
    return HostSample("h", at, services=services)


def test_the_mean_of_two_readings_counts_for_the_time_between() -> None:
    count = EnergyCount()
    for sample in (host(0, a=100.0), host(10, a=300.0, b=5.0), host(12, a=300.0, b=5.0)):
        count.add(sample)
    assert count.joules == {"a": 2600.0, "b": 10.0}


def test_a_gap_an_unknown_power_and_a_clock_that_goes_back_add_nothing() -> None:
    count = EnergyCount()
    for sample in (
        host(0, a=100.0),
        host(60, a=100.0),
        host(61, a=None),
        host(62, a=100.0),
        host(50, a=100.0),
    ):
        count.add(sample)
    assert count.joules == {}
