"""A run's file, and its workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.bench import run_file
from gaudi_launch.bench.run_file import (
    BenchRun,
    BenchWorkload,
    Sample,
    WorkloadRequest,
    check_writable,
    load,
    save,
)
from gaudi_launch.errors import ExitCode, LaunchError
from tests.support.refusals import failing

REQUESTS = (WorkloadRequest(0.0, 10, 5), WorkloadRequest(0.123456, 20, 6))
WORKLOAD = BenchWorkload(REQUESTS, "rate", 4, "trace.csv", 3, 2.5)
SAMPLE = Sample(0.1234567, 0.2, 10, 5, 0.3, 0.4, (0.0123456, 0.5), 11, 5)
FAILED = Sample(1.0, 1.0, 10, 5, error="cut", detail="why")


def test_a_workload_as_json() -> None:
    assert WORKLOAD.to_json() == {
        "source": "trace.csv",
        "arrivals": "rate",
        "rate": 2.5,
        "concurrency": 4,
        "requests": 2,
        "left_out": 3,
        "input_tokens": 30,
        "output_tokens": 11,
        # kept in files: two runs are compared by it
        "digest": "0409d8d74e542b9a",
    }


def test_a_sample_as_json_has_only_what_is_known() -> None:
    assert SAMPLE.to_json() == {
        "at": 0.123457,
        "sent": 0.2,
        "wanted_input": 10,
        "wanted_output": 5,
        "first": 0.3,
        "last": 0.4,
        "gaps": [0.01235, 0.5],
        "input": 11,
        "output": 5,
    }
    assert FAILED.to_json() == {
        "at": 1.0,
        "sent": 1.0,
        "wanted_input": 10,
        "wanted_output": 5,
        "output": 0,
        "error": "cut",
        "detail": "why",
    }
    assert (SAMPLE.ok, FAILED.ok) == (True, False)


def test_a_run_is_written_with_one_sample_a_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "run.json"
    run = BenchRun(
        {"model": "模型"}, WORKLOAD.to_json(), {"requests": 2}, (FAILED, FAILED), {"raw": 1}
    )
    save(run, path)
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    assert {**document, "samples": None} == {
        "schema": 1,
        "kind": "bench",
        "model": "模型",
        "workload": WORKLOAD.to_json(),
        "summary": {"requests": 2},
        "report": {"raw": 1},
        "samples": None,
    }
    assert "模型" in text
    line = json.dumps(FAILED.to_json())
    assert text.endswith(f' "samples": [\n{line},\n{line}\n]}}\n')
    assert load(path) == run


def test_a_file_that_cannot_be_written_is_named_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "run.json")
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "run.json"):
        with failing("measure.not_writable", ExitCode.USAGE) as caught:
            check_writable(path)
        assert caught.value.text.values == {"path": str(path)}


def test_the_reason_of_a_file_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError) as caught:
        save(BenchRun({}, {}, {}), tmp_path / "file" / "run.json")
    assert caught.value.text.values == {
        "path": str(tmp_path / "file" / "run.json"),
        "why": "File exists",
    }
    with failing("measure.unreadable", ExitCode.USAGE) as caught:
        load(tmp_path / "none")
    assert caught.value.text.values == {
        "path": str(tmp_path / "none"),
        "why": "No such file or directory",
    }


GOOD = {"at": 0, "sent": 0, "wanted_input": 1, "wanted_output": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"},
        {"schema": 2},
        {"workload": []},
        {"report": 1},
        {"summary": {"ttft": {"mean": "fast"}}},
        {"summary": {"requests": "many"}},
        {"samples": [{**GOOD, "sent": "now"}]},
        {"samples": [{**GOOD, "first": "now"}]},
        {"samples": [{**GOOD, "error": 5}]},
        {"samples": [{**GOOD, "colour": 5}]},
        {"samples": [{**GOOD, "gaps": ["x"]}]},
    ],
)
def test_a_file_of_another_form_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    good = {"kind": "bench", "schema": 1, "workload": {}, "summary": {}, "samples": [GOOD]}
    path.write_text(json.dumps(good))
    assert load(path) == BenchRun({}, {}, {}, (Sample(0, 0, 1, 1),))
    path.write_text(json.dumps({**good, **changes}))
    with failing("measure.not_a_run", ExitCode.USAGE) as caught:
        load(path)
    assert caught.value.text.values == {"path": str(path)}


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    save(BenchRun({}, {}, {}, (SAMPLE,)), path)
    monkeypatch.setattr(run_file, "_MOST_BYTES", path.stat().st_size)
    assert load(path).samples[0].at == 0.123457
    monkeypatch.setattr(run_file, "_MOST_BYTES", path.stat().st_size - 1)
    with failing("measure.not_a_run", ExitCode.USAGE) as caught:
        load(path)
    assert caught.value.text.values == {"path": str(path)}
