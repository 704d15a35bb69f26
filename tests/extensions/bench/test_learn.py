"""`bench --learn`: speeds from saved runs, logs and /metrics pages of this host's services."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.buckets.warmup_time import FILE_NAME, read_measured
from gaudi_launch.core.launch.prediction import RecordedSetup, of_figure, of_record
from gaudi_launch.core.predict.learned import read_learned, state_file
from gaudi_launch.core.predict.load import from_ranges
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Setup
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.command import with_learned
from gaudi_launch.extensions.bench.learn import (
    learn,
    learned_json,
    read_result,
    service_and_files,
    unlearn,
)
from gaudi_launch.extensions.bench.measurement import server_facts
from gaudi_launch.extensions.bench.run_file import load
from tests.support.places import DATA
from tests.support.refusals import refused
from tests.support.traces import limits

LOG = (
    "Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {made} "
    "tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 1.0%, "
    "Prefix cache hit rate: 0.0%\n"
)
PAGE = """# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_sum{model_name="demo"} 2000.0
vllm:request_prompt_tokens_count{model_name="demo"} 10.0
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_sum{model_name="demo"} 500.0
vllm:request_generation_tokens_count{model_name="demo"} 10.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_sum{model_name="demo"} 24.5
vllm:inter_token_latency_seconds_count{model_name="demo"} 490.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_sum{model_name="demo"} 2500.0
vllm:iteration_tokens_total_count{model_name="demo"} 125.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="demo"} 500.0
"""


pytestmark = pytest.mark.usefixtures("own_folders")


SETUP = RecordedSetup(
    engine="cpu",
    model="demo",
    dtype="float32",
    limits=limits(mixed_steps=True, max_num_batched_tokens=2048),
    setup=Setup("cpu", 1, "bf16", 4.0, 4.0, "v1", prompt_tokens=2048),
    shape=Shape(30, 30, 576, 1536, 1e8, 2.8e7, 576, 3, 64),
    measured=True,
)


@pytest.fixture
def plan() -> dict[str, Any]:
    return {"engine": {"name": "cpu", "version": "0.32.0"}, "setup": codec.write(SETUP)}


def bench(path: Path, record: dict[str, Any] | None, **changes: Any) -> str:
    """Write a saved run: 8 clients, 100 tokens in, 50 out, 20 ms a token."""
    document = {
        "schema": 1,
        "kind": "bench",
        "plan": record,
        "workload": {"arrivals": "closed", "concurrency": 8},
        "summary": {
            "completed": 16,
            "failed": 0,
            "input_tokens": 1600,
            "output_tokens": 800,
            "output_rate": 300.0,
            "ttft": {"p50": 0.2},
            "tpot": {"p50": 0.02},
        },
        "samples": [],
    }
    path.write_text(json.dumps({**document, **changes}, indent=1))
    return str(path)


def test_a_run_keeps_the_setup_of_its_server(plan: dict[str, Any], tmp_path: Path) -> None:
    facts = server_facts(Target("http://a:1", plan={**plan, "settings": []}), "demo")
    found = read_result(Path(bench(tmp_path / "run.json", facts["plan"])), "")
    assert {(each.setup, each.shape) for each in found.measurements} == {(SETUP.setup, SETUP.shape)}


@pytest.mark.parametrize("tokens", [256, 2048])
def test_a_run_is_predicted_as_its_server(tokens: int, tmp_path: Path) -> None:
    served = limits(mixed_steps=True, max_num_batched_tokens=tokens)
    recorded = replace(SETUP, limits=served, setup=Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v1"))
    record = {"engine": {}, "setup": codec.write(recorded)}
    found = read_result(Path(bench(tmp_path / "run.json", record)), "").measurements[-1]
    sent = replace(from_ranges((100, 100), (50, 50), 16), clients=8, recorded=True)
    expected = of_record(record, sent)
    assert expected is not None and found.measure == "throughput"
    assert of_figure(found) == pytest.approx(expected.tokens, rel=1e-9)


def service(plan: dict[str, Any], log: Path) -> None:
    folder = store.services_dir() / "demo"
    folder.mkdir(parents=True)
    store.write(folder, "plan.json", plan)
    store.write(folder, "state.json", {"name": "demo", "log": str(log), "phase": "stopped"})


def reason(path: Path, service: str) -> str:
    """Return why nothing can be learned from a file."""
    found = read_result(path, service)
    assert found.measurements == ()
    assert found.why_not is not None
    return found.why_not.id


def test_a_result_of_vllm_bench_serve_gives_what_a_run_gives(
    plan: dict[str, Any], tmp_path: Path
) -> None:
    service(plan, tmp_path / "engine.log")
    # twelve requests of four clients to the CPU engine, by the command's own defaults
    recorded = DATA / "bench" / "vllm-0.32.0.json"
    assert service_and_files(["demo", str(recorded)]) == ("demo", [str(recorded)])
    found = read_result(recorded, "demo")
    rows = [
        (each.measure, each.input, each.output, each.batch, round(each.value, 4))
        for each in found.measurements
    ]
    assert (found.kind, rows) == (
        "vllm",
        [
            ("ttft", 128.0, 12.0, 4.0, 0.5557),
            ("tpot", 128.0, 12.0, 4.0, 0.0529),
            ("throughput", 128.0, 12.0, 4.0, 40.1579),
        ],
    )
    other = tmp_path / "other.json"
    # benchmark_serving.py, which the forks have, names no endpoint_type and no failed requests
    older = json.loads(recorded.read_text())
    del older["endpoint_type"], older["failed"]
    other.write_text("\n".join((json.dumps(older), recorded.read_text())))
    twice = read_result(other, "demo").measurements
    assert [each.value for each in twice] == 2 * [each.value for each in found.measurements]
    for name, changes, why in (
        ("demo", {"request_rate": 2.0}, "learn.not_closed"),
        ("demo", {"max_concurrency": None}, "learn.not_closed"),
        ("demo", {"completed": 4}, "learn.too_few"),
        ("", {}, "learn.no_service"),
    ):
        other.write_text(json.dumps({**json.loads(recorded.read_text()), **changes}))
        assert reason(other, name) == why, changes
    other.write_text(recorded.read_text()[:-1])
    with refused("measure.not_a_run", ExitCode.USAGE, path=str(other)):
        read_result(other, "demo")


def test_a_run_is_learned_from_after_it_was_kept(plan: dict[str, Any], tmp_path: Path) -> None:
    path = Path(bench(tmp_path / "run.json", plan))
    report = with_learned(BenchReport(load(path), path))
    assert report.learned is not None and len(report.learned.results[0].measurements) == 3
    strange = Path(bench(tmp_path / "run.json", None))
    problem = with_learned(BenchReport(load(strange), strange)).problem
    assert problem is not None and problem.text.id == "learn.nothing"
    lost = BenchReport(load(strange), problem=problem)
    assert with_learned(lost) is lost


def test_a_log_gives_a_step_time_for_each_number_of_sequences(
    plan: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    lines = [
        LOG.format(prompt=0.0, made=made, running=running, waiting=waiting)
        for made, running, waiting in (
            (100.0, 4, 0),
            (80.0, 4, 0),
            (20.0, 4, 0),
            (50.0, 1, 0),
            (1.0, 9, 3),
        )
    ]
    # prompts took a part of this interval
    lines.append(LOG.format(prompt=500.0, made=30.0, running=4, waiting=0))
    log.write_text("".join(lines))
    assert reason(log, "") == "learn.no_service"
    (tmp_path / "notes.txt").write_text("no log\n")
    assert reason(tmp_path / "notes.txt", "") == "learn.no_speeds"
    service(plan, log)
    found = read_result(log, "")
    rows = [(each.statistic, each.batch, each.value) for each in found.measurements]
    assert rows == [("step", 1.0, 0.02), ("step", 4.0, 0.05)]


def test_a_metrics_page_gives_the_mean_time_per_token(plan: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "metrics.txt"
    page.write_text(PAGE)
    service(plan, tmp_path / "engine.log")
    (found,) = read_result(page, "demo").measurements
    # 500 tokens in 125 steps
    assert (found.measure, found.input, found.output, found.batch) == ("tpot", 200.0, 50.0, 4.0)
    assert found.value == pytest.approx(0.05)


def test_predictions_of_this_host_follow_and_unlearn_ends_it(
    plan: dict[str, Any], tmp_path: Path
) -> None:
    asked = from_ranges((100, 100), (50, 50)).of_clients(8)
    assert of_record(plan, asked) is None
    outcome = learn([bench(tmp_path / "run.json", plan)], "")
    assert (outcome.learned.version, len(outcome.results[0].measurements)) == (1, 3)
    found = of_record(plan, asked)
    assert found is not None
    assert (found.evidence.learned, found.evidence.near) == (1, True)
    assert found.tpot.mean == pytest.approx(0.02, rel=0.25)
    assert found.tokens == pytest.approx(300, rel=0.25)
    unlearn()
    unlearn()
    assert of_record(plan, asked) is None


def test_a_log_gives_its_warm_up_once(plan: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    line = (
        "INFO 11-21 03:03:01 [runner.py:2587] [Warmup][Prompt][{}/4] batch_size:1 seq_len:128 "
        "free_mem:0 B\n"
    )
    end = (
        "INFO 11-21 03:03:09 [runner.py:2801] Warmup finished in 9 secs, allocated 68 MiB of "
        "device memory\n"
    )
    log.write_text("".join(line.format(number) for number in range(1, 5)) + end)
    service(plan, log)
    assert [reason(log, "") for _ in range(2)] == ["learn.no_speed_lines"] * 2
    (found,) = read_measured(state_dir() / FILE_NAME)
    assert (found.model, found.cards, found.dtype, found.graphs, found.seconds) == (
        "demo",
        1,
        "float32",
        4,
        9.0,
    )


def test_a_file_that_cannot_be_read_and_constants_that_cannot_be_written_are_errors(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    with refused("measure.unreadable", ExitCode.USAGE, path=str(gone), why=os.strerror(2)):
        read_result(gone, "")
    run = bench(tmp_path / "run.json", plan)
    state_file().parent.mkdir(parents=True, exist_ok=True)
    state_file().mkdir()
    values = {"path": str(state_file()), "why": os.strerror(21)}
    for work in (lambda: learn([run], ""), unlearn):
        with refused("learn.not_written", ExitCode.FAILED, **values):
            work()
    assert read_learned() is None and learned_json(None)["version"] == 0


def test_simulated_cards_teach_nothing(plan: dict[str, Any], tmp_path: Path) -> None:
    simulated = {**plan, "engine": {**plan["engine"], "simulated": True}}
    for changes in ({"simulated": True}, {"plan": simulated}):
        path = Path(bench(tmp_path / "run.json", plan, **changes))
        assert reason(path, "") == "learn.simulated"
    service(simulated, tmp_path / "engine.log")
    assert reason(DATA / "bench" / "vllm-0.32.0.json", "demo") == "learn.simulated"


def test_a_slow_engine_gives_its_step_time_too(plan: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    rows = ((0.0, 0.5, 1, 0), (0.0, 0.0, 2, 0), (4.0, 80.0, 8, 0), (4.1, 80.0, 16, 0))
    log.write_text(
        "".join(
            LOG.format(prompt=prompt, made=made, running=running, waiting=waiting)
            for prompt, made, running, waiting in rows
        )
    )
    service(plan, log)
    found = read_result(log, "demo")
    # a twentieth of prompt tokens is none
    assert [(each.batch, each.value) for each in found.measurements] == [(1.0, 2.0), (8.0, 0.1)]
    assert {(each.source, each.input, each.output) for each in found.measurements} == {
        (str(log), 256, 256)
    }
