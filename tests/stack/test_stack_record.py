"""The record of a started stack."""

from __future__ import annotations

import pytest

from gaudi_launch.errors import LaunchError
from gaudi_launch.stack import stack_record
from gaudi_launch.stack.stack_record import (
    StackRecord,
    forget,
    hash_of,
    held,
    read_record,
    records,
    write_record,
)

pytestmark = pytest.mark.usefixtures("own_folders")

RECORD = StackRecord(
    "site", "/s.yaml", {"site-gateway": "sha256:1", "site-a": "sha256:2"}, {"site-a": "a"}
)


def test_what_was_written_is_read_and_leaves_nothing_when_forgotten() -> None:
    with held("site"):
        write_record(RECORD)
    assert (read_record("site"), records()) == (RECORD, (RECORD,))
    with held("site"):
        forget("site")
    assert (read_record("site"), records(), stack_record.stacks_dir().exists()) == (None, (), False)


def test_one_command_at_a_time_changes_a_stack() -> None:
    with held("site"), pytest.raises(LaunchError) as raised, held("site"):
        pass
    assert raised.value.id == "stack.locked"


def test_a_damaged_record_is_one_without_services() -> None:
    with held("site"):
        write_record(RECORD)
        (stack_record.stacks_dir() / "site" / "stack.json").write_text(
            '{"services": [1], "models": null}'
        )
    assert read_record("site") == StackRecord("site", "")


def test_the_hash_is_that_of_the_content() -> None:
    assert hash_of({"a": 1, "b": (2,)}) == hash_of({"b": [2], "a": 1})
    assert hash_of({"a": 1}) != hash_of({"a": 2})
