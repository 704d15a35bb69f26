"""The use case of ``gaudi-launch learn``: results of this host to its constants."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError, file_error
from gaudi_launch.json_values import mapping
from gaudi_launch.messages import Message, message, rendered

if TYPE_CHECKING:
    from gaudi_launch.app.estimate import RecordedSetup
    from gaudi_launch.performance.learned import LearnedConstants, SpeedMeasurement

_log = logging.getLogger(__name__)

_MOST_BYTES = 256 << 20
# "Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 96.1 tokens/s,
# Running: 4 reqs, ..." (vllm/v1/metrics/loggers.py, vllm/engine/metrics.py)
_LOG_LINE = re.compile(
    r"Avg prompt throughput: ([0-9.]+) tokens/s, Avg generation throughput: ([0-9.]+) tokens/s, "
    r"Running: ([0-9]+) reqs, .*?Waiting: ([0-9]+) reqs"
)
# an interval is all decoding up to this share of prompt tokens
_MOST_PROMPT_SHARE = 0.05
# assumed: a log does not contain the lengths of its requests
_LOG_INPUT, _LOG_OUTPUT = 256, 256
_PROMPTS = "vllm:request_prompt_tokens"
_TOKENS = "vllm:request_generation_tokens"
_TPOT = ("vllm:request_time_per_output_token_seconds", "vllm:inter_token_latency_seconds")
_OLD_TPOT = "vllm:time_per_output_token_seconds"
_STEPS = "vllm:iteration_tokens_total_count"
_GENERATED = "vllm:generation_tokens_total"
_FEWEST_REQUESTS = 5


@dataclass(frozen=True)
class ReadResult:
    """One file with its speeds, or the reason why it has none."""

    path: str
    kind: str
    measurements: tuple[SpeedMeasurement, ...]
    why_not: Message | None = None


@dataclass(frozen=True)
class LearnOutcome:
    """The new version of the constants, and the speeds of each file."""

    learned: LearnedConstants
    results: tuple[ReadResult, ...]


def learn(files: Sequence[str], service: str) -> LearnOutcome:
    """Learn from these files and write the next version.

    ``service`` names the service of logs and /metrics pages. Raises LaunchError (USAGE) where no
    file contains a speed, and (FAILED) where the version cannot be written.
    """
    from gaudi_launch.performance.constants import constants
    from gaudi_launch.performance.learned import read_learned, state_file, write_learned
    from gaudi_launch.performance.learning import learn as next_version

    results = tuple(read_result(Path(file), service) for file in files)
    found = [each for result in results for each in result.measurements]
    if not found:
        first = next(result for result in results)
        why = rendered(first.why_not) or "-"
        raise LaunchError("learn.nothing", ExitCode.USAGE, path=first.path, why=why)
    learned = next_version(read_learned(), found, constants(), now=time.time())
    try:
        write_learned(learned)
    except OSError as error:
        raise file_error("learn.not_written", error, state_file()) from None
    return LearnOutcome(learned, results)


def reset() -> bool:
    """Remove the learned constants; return False where there were none.

    Raises LaunchError (FAILED).
    """
    from gaudi_launch.performance.learned import state_file

    try:
        state_file().unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise file_error("learn.not_written", error, state_file()) from None
    return True


def current() -> LearnedConstants | None:
    """Return the learned constants of this host."""
    from gaudi_launch.performance.learned import read_learned

    return read_learned()


def read_result(path: Path, service: str) -> ReadResult:
    """Return the speeds of one file.

    Raises LaunchError (USAGE) for a file that cannot be read.
    """
    text = _text(path)
    if text.lstrip().startswith("{") and '"kind": "bench"' in text[:2000]:
        return _of_bench(path)
    setup = _setup_of_service(path, service)
    if setup is None:
        kind = "metrics" if "# TYPE vllm:" in text else "log"
        return ReadResult(str(path), kind, (), message("learn.no_service"))
    if "vllm:" in text and "# TYPE" in text:
        return _result(path, "metrics", _of_metrics(text, str(path), setup), "learn.no_requests")
    _remember_warmup(text, setup)
    return _result(
        path, "log", _of_log(text.splitlines(), str(path), setup), "learn.no_speed_lines"
    )


def _result(path: Path, kind: str, found: Iterable[SpeedMeasurement], why_not: str) -> ReadResult:
    measurements = tuple(found)
    return ReadResult(str(path), kind, measurements, None if measurements else message(why_not))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise file_error("measure.unreadable", error, path, ExitCode.USAGE) from None


def _of_bench(path: Path) -> ReadResult:
    from gaudi_launch.app.estimate import setup_of_record
    from gaudi_launch.bench.run_file import load

    run = load(path)
    if run.facts.get("simulated"):
        return ReadResult(str(path), "bench", (), message("learn.simulated"))
    plan = run.facts.get("plan")
    setup = setup_of_record(mapping(plan))
    if setup is None and mapping(mapping(plan).get("engine")).get("simulated") is True:
        return ReadResult(str(path), "bench", (), message("learn.simulated"))
    if setup is None:
        return ReadResult(str(path), "bench", (), message("learn.no_plan"))
    workload, summary = run.workload, run.summary
    completed = int(summary.get("completed") or 0)
    if completed < _FEWEST_REQUESTS or summary.get("failed"):
        return ReadResult(str(path), "bench", (), message("learn.too_few", count=_FEWEST_REQUESTS))
    if workload.get("arrivals") != "closed" or not workload.get("concurrency"):
        return ReadResult(str(path), "bench", (), message("learn.not_closed"))
    concurrency = min(int(workload["concurrency"]), completed)
    load_of = _Averages(
        float(summary["input_tokens"]) / completed,
        float(summary["output_tokens"]) / completed,
        float(concurrency),
    )
    found = []
    for measure in ("ttft", "tpot"):
        value = _median(summary.get(measure))
        if value is not None:
            found.append(_measurement(str(path), setup, load_of, measure, value))
    rate = summary.get("output_rate")
    if isinstance(rate, int | float) and rate > 0:
        found.append(_measurement(str(path), setup, load_of, "throughput", float(rate)))
    return _result(path, "bench", found, "learn.no_requests")


def _median(figure: object) -> float | None:
    if not isinstance(figure, Mapping):
        return None
    value = figure.get("p50")
    if isinstance(value, int | float) and value > 0:
        return float(value)
    return None


@dataclass(frozen=True)
class _Averages:
    """The mean lengths of a load in tokens, and its sequences at once."""

    input: float
    output: float
    batch: float


def _measurement(
    source: str,
    recorded: RecordedSetup,
    load: _Averages,
    measure: str,
    value: float,
    statistic: str = "mean",
) -> SpeedMeasurement:
    from gaudi_launch.performance.learned import SpeedMeasurement

    return SpeedMeasurement(
        source=source,
        measure=measure,
        statistic=statistic,
        engine=recorded.engine,
        model=recorded.model.name,
        setup=asdict(recorded.setup),
        shape=asdict(recorded.shape),
        input=round(load.input, 3),
        output=round(max(2.0, load.output), 3),
        batch=round(max(1.0, load.batch), 3),
        value=value,
    )


def _setup_of_service(path: Path, service: str) -> RecordedSetup | None:
    """Return the setup of the service of a log or a page.

    The service is the one named, else that with this log.
    """
    from gaudi_launch.app.estimate import setup_of_record
    from gaudi_launch.services.state import registry, store

    if service:
        found = registry.find(service)
    else:
        absolute = str(path.absolute())
        matching = [one for one in registry.services() if str(one.state.get("log", "")) == absolute]
        if not matching:
            return None
        found = matching[0]
    plan = store.read(found.folder, "plan.json")
    return setup_of_record(plan or {})


def _of_metrics(page: str, source: str, setup: RecordedSetup) -> list[SpeedMeasurement]:
    """Return the mean speeds of all requests that a page counts."""
    from gaudi_launch.metrics_page import samples

    sums: dict[str, float] = {}
    for sample in samples(page):
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value

    def mean(name: str) -> float | None:
        count = sums.get(f"{name}_count", 0.0)
        if count >= _FEWEST_REQUESTS:
            return sums.get(f"{name}_sum", 0.0) / count
        return None

    prompt, output = mean(_PROMPTS), mean(_TOKENS)
    tpot = next((found for name in (*_TPOT, _OLD_TPOT) if (found := mean(name)) is not None), None)
    steps = sums.get(_STEPS, 0.0)
    if prompt is None or output is None or tpot is None or output < 2 or not steps:
        return []
    # tokens of each step are those of the sequences that decode in it
    load = _Averages(prompt, output, max(1.0, sums.get(_GENERATED, 0.0) / steps))
    return [_measurement(source, setup, load, "tpot", tpot)]


def _of_log(lines: Iterable[str], source: str, setup: RecordedSetup) -> list[SpeedMeasurement]:
    """Return one step time for each number of sequences that decode together.

    It is the median of the intervals without prompts, so that those in which a sequence began or
    ended do not count.
    """
    intervals: dict[int, list[float]] = {}
    for line in lines:
        match = _LOG_LINE.search(line)
        if match is None:
            continue
        prompt, generated, running, waiting = (float(text) for text in match.groups())
        if running and not waiting and generated > 0 and prompt <= _MOST_PROMPT_SHARE * generated:
            intervals.setdefault(int(running), []).append(running / generated)
    found = []
    for running, seconds in sorted(intervals.items()):
        middle = sorted(seconds)[len(seconds) // 2]
        if math.isfinite(middle):
            load = _Averages(_LOG_INPUT, _LOG_OUTPUT, float(running))
            found.append(_measurement(source, setup, load, "tpot", middle, "step"))
    return found


def _remember_warmup(text: str, setup: RecordedSetup) -> None:
    """Record the warm-up of a log once, next to those that launches record."""
    from gaudi_launch.buckets.warmup_time import FILE_NAME, Measured, read_measured, record
    from gaudi_launch.debug_log import best_effort
    from gaudi_launch.paths import state_dir
    from gaudi_launch.services.log.follow import Follower

    progress = Follower().feed(text + "\n", 0.0)
    seconds = progress.facts.get("warmup_seconds")
    graphs = sum(phase.items for phase in progress.phases if phase.name.startswith("warmup_"))
    if not graphs or seconds is None:
        return
    file = state_dir() / FILE_NAME
    found = Measured(
        setup.engine, setup.model.name, setup.setup.cards, setup.dtype, graphs, float(seconds)
    )
    if found not in read_measured(file):
        with best_effort(_log, "record the warm-up of a log", OSError):
            record(file, found)


def to_json(learned: LearnedConstants | None) -> dict[str, Any]:
    """Return the learned constants, as in ``learn --show --json``."""
    from gaudi_launch.performance.constants import constants

    if learned is None:
        return dict(_NOTHING_LEARNED)
    shipped = constants()
    rows = []
    for name, value in learned.values.items():
        constant = shipped[name]
        rows.append(
            {"name": name, "unit": constant.unit, "shipped": constant.value, "learned": value}
        )
    return {
        "schema": 1,
        "version": learned.version,
        "learned_at": learned.learned_at,
        "measurements": len(learned.measurements),
        "left_out": learned.left_out,
        "typical_factor": round(learned.typical, 4),
        "typical_factor_before": round(learned.before, 4),
        "constants": rows,
    }


_NOTHING_LEARNED: Mapping[str, Any] = {
    "schema": 1,
    "version": 0,
    "learned_at": None,
    "measurements": 0,
    "left_out": 0,
    "typical_factor": None,
    "typical_factor_before": None,
    "constants": [],
}
