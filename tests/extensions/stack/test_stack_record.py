"""The record of a started stack."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.stack import stack_record
from gaudi_launch.extensions.stack.stack_record import (
    StackRecord,
    held,
    read_record,
    records,
    write_record,
)

pytestmark = pytest.mark.usefixtures("own_folders")

RECORD = StackRecord(
    "site", "/s.yaml", {"site-gateway": "sha256:1", "site-a": "sha256:2"}, {"site-a": "a"}
)


def test_names_that_are_none_have_no_record() -> None:
    assert read_record("../x") is None
    with held("site"):
        write_record(RECORD)
    (stack_record.stacks_dir() / "empty").mkdir()
    (stack_record.stacks_dir() / "file").touch()
    assert [record.name for record in records()] == ["site"]


def test_a_record_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write", lambda *_: False)
    with pytest.raises(LaunchError) as raised:
        write_record(RECORD)
    values = {
        "path": str(stack_record.stacks_dir() / "site"), "why": "No space left on device",
    }  # fmt: skip
    found = (raised.value.id, raised.value.exit_code, raised.value.text.values)
    assert found == ("serve.state_folder", ExitCode.FAILED, values)
