"""The figures of a run, from samples with round times."""

from gaudi_launch.extensions.bench.run_file import Sample
from gaudi_launch.extensions.bench.statistics import latency, spread, summary, tpot, ttft

GOOD = Sample(1.0, 1.25, 90, 5, 2.0, 4.0, (1.0, 1.0), 100, 5)
# the server counts nothing
UNCOUNTED = Sample(2.0, 2.0, 50, 3, 2.5, 3.0, (0.5,), None, 3)
LATE = Sample(3.0, 9.0, 10, 4, error="status 500", detail="first")
SAMPLES = (GOOD, UNCOUNTED, LATE, Sample(3.0, 3.0, 10, 4, error="status 500", detail="second"))


def test_the_times_of_one_request_count_from_when_it_had_to_be_sent() -> None:
    assert [(ttft(each), latency(each), tpot(each)) for each in (GOOD, UNCOUNTED, LATE)] == [
        (1.0, 3.0, 0.5),
        (0.5, 1.0, 0.25),
        (None, None, None),
    ]
    one = Sample(0.0, 0.0, 1, 1, 1.0, 1.0, output=1)
    assert (ttft(one), tpot(one)) == (1.0, None)
    assert tpot(Sample(0.0, 0.0, 1, 2, 1.0, 2.0, output=2)) == 1.0


def test_all_figures_of_a_run() -> None:
    def both(low: float, high: float) -> dict[str, float]:
        steps = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
        cuts = {name: round(low + share * (high - low), 6) for name, share in steps.items()}
        return {"mean": (low + high) / 2, **cuts, "max": high}

    assert summary(SAMPLES) == {
        "requests": 4,
        "completed": 2,
        "failed": 2,
        # from the first arrival to the sending of the last
        "seconds": 8.0,
        "input_tokens": 150,
        "output_tokens": 8,
        "request_rate": 0.25,
        "output_rate": 1.0,
        "total_rate": 19.75,
        "ttft": both(0.5, 1.0),
        "tpot": both(0.25, 0.5),
        "itl": spread([1.0, 1.0, 0.5]),
        "latency": both(1.0, 3.0),
        "late": both(0.0, 0.25),
    }
    none = summary(())
    assert (none["seconds"], none["request_rate"], none["ttft"]) == (0.0, None, None)
