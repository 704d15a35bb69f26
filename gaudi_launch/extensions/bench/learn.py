"""The use case of ``bench --learn``: this host's measurements to its constants."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import is_number, mapping
from gaudi_launch.core.base.messages import Message, message, rendered
from gaudi_launch.core.base.metrics_page import samples
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.buckets import warmup_time
from gaudi_launch.core.launch.prediction import RecordedSetup, setup_of_record
from gaudi_launch.core.predict.constants import constants
from gaudi_launch.core.predict.learned import (
    LearnedConstants,
    read_learned,
    state_file,
    write_learned,
)
from gaudi_launch.core.predict.learning import learn as next_version
from gaudi_launch.core.predict.published import MEASURED_HERE, Figure
from gaudi_launch.core.services.log.follow import Follower
from gaudi_launch.core.services.state import chosen, registry, store
from gaudi_launch.extensions.bench.external_tools import vllm_summary
from gaudi_launch.extensions.bench.run_file import load

_log = logging.getLogger(__name__)

_MOST_BYTES = 256 << 20
# one of the first fields of a result of `vllm bench serve` (vllm/benchmarks/serve.py) and of the
# script before it (HabanaAI/vllm-fork@158d93216b90:benchmarks/benchmark_serving.py)
_OF_VLLM = '"tokenizer_id"'
# "Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 96.1 tokens/s,
# Running: 4 reqs, ..." (vllm/v1/metrics/loggers.py, vllm/engine/metrics.py)
_LOG_LINE = re.compile(
    r"Avg prompt throughput: ([0-9.]+) tokens/s, Avg generation throughput: ([0-9.]+) tokens/s, "
    r"Running: ([0-9]+) reqs, .*?Waiting: ([0-9]+) reqs"
)
# an interval is all decoding up to this share of prompt tokens
_MOST_PROMPT_SHARE = 0.05
# assumed: a log does not contain the lengths of its requests
_LOG_LENGTHS = (256, 256)
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
    measurements: tuple[Figure, ...]
    why_not: Message | None = None


@dataclass(frozen=True)
class LearnOutcome:
    """The new version of the constants, and the speeds of each file."""

    learned: LearnedConstants
    results: tuple[ReadResult, ...]

    def to_json(self) -> dict[str, Any]:
        files = [
            {
                "path": result.path,
                "kind": result.kind,
                "measurements": len(result.measurements),
                "why_not": rendered(result.why_not),
            }
            for result in self.results
        ]
        return {**learned_json(self.learned), "files": files}


class _Unusable(Exception):
    """A file teaches nothing, with the reason."""

    def __init__(self, id: str, **values: int) -> None:
        super().__init__(id)
        self.why = message(id, **values)


def service_and_files(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the service and the files; the first value may be a service."""
    if words and not Path(words[0]).is_file():
        return words[0], words[1:]
    return "", words


def learn(files: Sequence[str], service: str) -> LearnOutcome:
    """Learn from these files and write the next version.

    ``service`` names the service of files that do not name their setup. Raises LaunchError (USAGE)
    where no file contains a speed, and (FAILED) where the version cannot be written.
    """
    results = tuple(read_result(Path(file), service) for file in files)
    found = [each for result in results for each in result.measurements]
    if not found:
        why = rendered(results[0].why_not) or "-"
        raise LaunchError("learn.nothing", ExitCode.USAGE, path=results[0].path, why=why)
    learned = next_version(read_learned(), found, constants(), now=time.time())
    try:
        write_learned(learned)
    except OSError as error:
        raise file_error("learn.not_written", error, state_file()) from None
    return LearnOutcome(learned, results)


def unlearn() -> None:
    """Remove the learned constants. Raises LaunchError (FAILED)."""
    try:
        state_file().unlink(missing_ok=True)
    except OSError as error:
        raise file_error("learn.not_written", error, state_file()) from None


def read_result(path: Path, service: str) -> ReadResult:
    """Return the speeds of one file.

    Raises LaunchError (USAGE) for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise file_error("measure.unreadable", error, path, ExitCode.USAGE) from None
    kind, read = "log", _of_log
    start = text[:2000]
    if '"kind": "bench"' in start:
        kind, read = "bench", _of_bench
    elif _OF_VLLM in start:
        kind, read = "vllm", _of_vllm
    elif "# TYPE vllm:" in text:
        kind, read = "metrics", _of_metrics
    try:
        return ReadResult(str(path), kind, tuple(read(path, text, service)))
    except _Unusable as error:
        return ReadResult(str(path), kind, (), error.why)


def _of_bench(path: Path, text: str, service: str) -> Iterable[Figure]:
    run = load(path)
    if run.facts.get("simulated"):
        raise _Unusable("learn.simulated")
    setup = _setup(mapping(run.facts.get("plan")))
    closed = run.workload.get("arrivals") == "closed"
    return _of_run(path, setup, closed and run.workload.get("concurrency"), run.summary)


def _of_vllm(path: Path, text: str, service: str) -> Iterable[Figure]:
    """Return the speeds of a file that ``vllm bench serve --save-result`` wrote.

    With ``--append-result`` it has one result per line.
    """
    setup = _setup_of_service(path, service)
    found: list[Figure] = []
    for report in _reports(path, text):
        # without a rate all requests are sent at once, as far as the limit permits
        closed = report.get("request_rate") == "inf"
        clients = closed and report.get("max_concurrency")
        found += _of_run(path, setup, clients, vllm_summary(report))
    return found


def _reports(path: Path, text: str) -> list[Mapping[str, Any]]:
    """Return the results of a file: one, or one a line. Raises LaunchError."""
    try:
        return [mapping(parse_json(text, as_engine=True))]
    except ValueError:
        pass
    try:
        return [mapping(parse_json(line, as_engine=True)) for line in text.splitlines()]
    except ValueError:
        raise LaunchError("measure.not_a_run", ExitCode.USAGE, path=str(path)) from None


def _of_run(
    path: Path, setup: RecordedSetup, clients: object, summary: Mapping[str, Any]
) -> Iterable[Figure]:
    """Return the speeds of a closed loop; other loads have no number of ``clients``."""
    completed = int(summary.get("completed") or 0)
    if completed < _FEWEST_REQUESTS or summary.get("failed"):
        raise _Unusable("learn.too_few", count=_FEWEST_REQUESTS)
    if not isinstance(clients, int) or not clients:
        raise _Unusable("learn.not_closed")
    lengths = [(summary.get(f"{name}_tokens") or 0) / completed for name in ("input", "output")]
    base = _measurement(path, setup, lengths, min(clients, completed))
    base = replace(base, requests=float(completed))
    values = {measure: mapping(summary.get(measure)).get("p50") for measure in ("ttft", "tpot")}
    values["throughput"] = summary.get("output_rate")
    known = {name: value for name, value in values.items() if is_number(value) and value > 0}
    if not known:
        raise _Unusable("learn.no_requests")
    return [replace(base, measure=name, value=float(value)) for name, value in known.items()]


def _measurement(
    source: Path, recorded: RecordedSetup, lengths: Sequence[float], batch: float
) -> Figure:
    """Return a mean TPOT without its value; ``lengths``: input and output tokens."""
    setup = recorded.setup
    if recorded.limits.mixed_steps and not setup.prompt_tokens:
        setup = replace(setup, step_tokens=recorded.limits.max_num_batched_tokens)
    return Figure(
        source=str(source),
        measure="tpot",
        statistic="mean",
        harness=recorded.engine,
        software="",
        model=recorded.model,
        setup=setup,
        shape=recorded.shape,
        input=round(float(lengths[0]), 3),
        output=round(max(2.0, lengths[1]), 3),
        batch=round(max(1.0, batch), 3),
        value=0.0,
        note=MEASURED_HERE,
    )


def _setup(plan: Mapping[str, Any]) -> RecordedSetup:
    """Return the setup of a recorded plan. Raises _Unusable."""
    if mapping(plan.get("engine")).get("simulated") is True:
        raise _Unusable("learn.simulated")
    found = setup_of_record(plan)
    if found is None:
        raise _Unusable("learn.no_plan")
    return found


def _setup_of_service(path: Path, service: str) -> RecordedSetup:
    """Return the setup of the service of a file.

    The service is the one named, else that with this log.
    """
    if not service:
        log = str(path.absolute())
        service = next((one.name for one in registry.services() if one.state.get("log") == log), "")
    if not service:
        raise _Unusable("learn.no_service")
    return _setup(store.read(chosen.resolve(service).folder, "plan.json") or {})


def _of_metrics(path: Path, text: str, service: str) -> Iterable[Figure]:
    """Return the mean speeds of all requests that a page counts."""
    setup = _setup_of_service(path, service)
    sums: dict[str, float] = {}
    for sample in samples(text):
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
        raise _Unusable("learn.no_requests")
    # tokens of each step are those of the sequences that decode in it
    batch = sums.get(_GENERATED, 0.0) / steps
    return [replace(_measurement(path, setup, (prompt, output), batch), value=tpot)]


def _of_log(path: Path, text: str, service: str) -> Iterable[Figure]:
    """Return one step time for each number of sequences that decode together.

    It is the median of the intervals without prompts, so that those in which a sequence began or
    ended do not count.
    """
    try:
        setup = _setup_of_service(path, service)
    except _Unusable:
        if _LOG_LINE.search(text) is None:
            raise _Unusable("learn.no_speeds") from None
        raise
    _remember_warmup(text, setup)
    intervals: dict[int, list[float]] = {}
    for line in text.splitlines():
        match = _LOG_LINE.search(line)
        if match is None:
            continue
        prompt, generated, running, waiting = (float(each) for each in match.groups())
        if running and not waiting and generated > 0 and prompt <= _MOST_PROMPT_SHARE * generated:
            intervals.setdefault(int(running), []).append(running / generated)
    found = []
    for running, seconds in sorted(intervals.items()):
        middle = sorted(seconds)[len(seconds) // 2]
        if math.isfinite(middle):
            base = _measurement(path, setup, _LOG_LENGTHS, running)
            found.append(replace(base, statistic="step", value=middle))
    if not found:
        raise _Unusable("learn.no_speed_lines")
    return found


def _remember_warmup(text: str, setup: RecordedSetup) -> None:
    """Record the warm-up of a log once, next to those that launches record."""
    progress = Follower().feed(text + "\n", 0.0)
    seconds = progress.facts.get("warmup_seconds")
    graphs = sum(phase.items for phase in progress.phases if phase.name.startswith("warmup_"))
    if not graphs or seconds is None:
        return
    file = state_dir() / warmup_time.FILE_NAME
    found = warmup_time.Measured(
        setup.engine, setup.model, setup.setup.cards, setup.dtype, graphs, float(seconds)
    )
    if found not in warmup_time.read_measured(file):
        with best_effort(_log, "record the warm-up of a log", OSError):
            warmup_time.record(file, found)


def learned_json(learned: LearnedConstants | None) -> dict[str, Any]:
    """Return the learned constants, as in ``bench --learned --json``."""
    if learned is None:
        learned = LearnedConstants(0, 0.0, {}, 1.0, 1.0, 0, ())
    shipped, rows = constants(), []
    for name, own in learned.values.items():
        one = shipped[name]
        rows.append({"name": name, "unit": one.unit, "shipped": one.value, "learned": own})
    return {
        "schema": 1,
        "version": learned.version,
        "learned_at": learned.learned_at or None,
        "measurements": len(learned.measurements),
        "left_out": learned.left_out,
        "typical_factor": round(learned.typical, 4),
        "typical_factor_before": round(learned.before, 4),
        "constants": rows,
    }
