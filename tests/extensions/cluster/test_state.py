"""The record of a cluster on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.cluster.state import Part, Place, RunningCluster, remember, remembered
from tests.support.scripted_hosts import failed, member

FIRST = Part((Place(member("a"), "10.0.0.1"), Place(member("b"), "10.0.0.2")), "http://10.0.0.1:1")
RUNNING = RunningCluster("c", True, 8850, 4, (FIRST,))


def test_the_record_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "service.log").write_text("of an earlier launch")
    assert remember(tmp_path, RUNNING) == [tmp_path / "service.log"]
    assert remembered(tmp_path) == RUNNING
    assert (tmp_path / "service.log").read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.json", "service.log"]
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert (document["schema"], sorted(document)) == (1, ["cluster", "schema"])


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    values = {"path": str(folder), "why": "No such file or directory"}
    assert failed(lambda: remember(folder, RUNNING)) == (
        "serve.state_folder", ExitCode.FAILED, values, None,
    )  # fmt: skip


@pytest.mark.parametrize("parts", [(), (replace(FIRST, places=()),), (FIRST, Part((), ""))])
def test_a_record_without_hosts_is_damaged(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    remember(tmp_path, replace(RUNNING, parts=parts))
    values = {"path": str(tmp_path / "cluster.json"), "why": "-"}
    assert failed(lambda: remembered(tmp_path)) == (
        "cluster.bad_state", ExitCode.FAILED, values, None,
    )  # fmt: skip
