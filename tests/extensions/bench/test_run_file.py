"""A run's file, and its workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.bench.run_file import BenchRun, Sample, load
from tests.support.refusals import failing

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
