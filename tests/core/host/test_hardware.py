"""The records of a machine."""

from __future__ import annotations

from gaudi_launch.core.host.hl_smi_text import Process, Table
from tests.support.records import known


def test_output_of_hl_smi_without_a_value_has_none() -> None:
    assert known(Process(0, 7, "C", "python3")) == {
        "index": 0,
        "pid": 7,
        "kind": "C",
        "command": "python3",
    }
    assert known(Table()) == {"rows": (), "processes": ()}
