"""The speed that `serve` and `bench` print next to what is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.views import serve
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.launch import prediction
from gaudi_launch.core.launch.prediction import of_record
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.load import from_ranges
from gaudi_launch.extensions.bench import view as bench
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.run_file import BenchRun
from tests.support.vllm_gaudi_plans import HLS2

pytestmark = pytest.mark.usefixtures("plain_english")

LLAMA = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
RUN = BenchRun({"tool": "builtin", "url": "http://x", "model": "m"}, {"arrivals": "closed"}, {})
LOAD = from_ranges((1024, 1024), (256, 256)).of_clients(32)


@pytest.fixture
def gaudi3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "own_accelerator", lambda: "gaudi3")


def record(engine: str = "vllm-gaudi") -> dict[str, Any]:
    plan = make_plan(
        Request(model=LLAMA.path, max_model_len=8192, engine=engine), HLS2, LLAMA, find(engine)
    )
    document: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return document


def test_serve_prints_the_prediction_of_a_usual_load() -> None:
    request = Request(model=LLAMA.path, max_model_len=8192, engine="vllm-gaudi")
    plan = make_plan(request, HLS2, LLAMA, find("vllm-gaudi"))
    line = serve._predicted(plan)
    assert line is not None
    assert line.startswith(f"{plan.args.last('--max-num-seqs')} ")
    # as many clients as the plan admits
    few = make_plan(
        Request(model=LLAMA.path, max_model_len=8192, max_num_seqs=8),
        HLS2,
        LLAMA,
        find("vllm-gaudi"),
    )
    assert serve._predicted(few) != line


def test_bench_prints_the_prediction_next_to_its_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = of_record(record(), LOAD)
    assert found is not None
    report = BenchReport(RUN, Path("/tmp/run.json"), found)
    bench.show_report(report, False)
    shown = capsys.readouterr()
    assert "TPOT" in shown.out + shown.err
    bench.show_report(report, True)
    document = json.loads(capsys.readouterr().out)
    assert (
        document["predicted"]["tpot_seconds"]["expected"]
        == found.outcome.time(found.outcome.tpot).to_json()["expected"]
    )
    bench.show_report(replace(report, predicted=None), True)
    assert "predicted" not in json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("gaudi3")
def test_the_prediction_is_that_of_the_cards_of_this_machine() -> None:
    document = record()
    found = of_record(document, LOAD)
    assert found is not None
    setup = found.outcome.setup.speed.setup
    assert (setup.generation, setup.cards) == ("gaudi3", len(document["modules"]))


def test_an_incomplete_record_has_no_prediction() -> None:
    document = record()
    incomplete: list[dict[str, Any]] = [
        {"engine": None},
        {"model": None},
        {"dtype": "int3"},
        {"modules": []},
    ]
    for broken in incomplete:
        assert of_record({**document, **broken}, LOAD) is None
