"""The record of a started stack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway.gateway_settings import GatewaySettings
from gaudi_launch.services.state import store
from gaudi_launch.stack import stack_record
from gaudi_launch.stack.stack_file import (
    ModelOption,
    StackFile,
    StackModel,
)
from gaudi_launch.stack.stack_record import (
    StackRecord,
    engine_hash,
    engine_names,
    forget,
    gateway_hash,
    hash_of,
    held,
    read_record,
    record_of,
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
    assert raised.value.id == "lock.held"


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


MODEL = StackModel("a", "m", line=3, replicas=2, after=("b",), options=(ModelOption("cards", "1"),))
OTHER = StackModel("b", "n", aliases=("c",))
STACK = StackFile(Path("/s.yaml"), "site", GatewaySettings(), (MODEL, OTHER), {})
GATEWAY = "site-gateway"


def test_settings_that_an_engine_is_started_with() -> None:
    hashed = engine_hash(MODEL)
    unimportant: dict[str, Any] = {
        "line": 9, "after": (), "replicas": 5, "balance": "prefix",
    }  # fmt: skip
    for name, value in unimportant.items():
        assert engine_hash(replace(MODEL, **{name: value})) == hashed
    important: dict[str, Any] = {
        "name": "x", "model": "x", "aliases": ("x",), "restart": "no", "options": (),
        "engine_arguments": ("x",),
    }  # fmt: skip
    for name, value in important.items():
        assert engine_hash(replace(MODEL, **{name: value})) != hashed


def test_settings_of_the_gateway() -> None:
    hashed = gateway_hash(STACK)
    assert gateway_hash(replace(STACK, models=(replace(MODEL, replicas=1), OTHER))) == hashed
    for changed in (
        replace(STACK, gateway=GatewaySettings(port=1)),
        replace(STACK, models=(OTHER,)),
        replace(STACK, models=(MODEL, replace(OTHER, aliases=()))),
        replace(STACK, models=(MODEL, replace(OTHER, balance="prefix"))),
    ):
        assert gateway_hash(changed) != hashed


ENGINES = {"a": ("site-a", "site-a-2"), "b": ("site-b",)}


def test_the_record_of_a_stack() -> None:
    mine, theirs = engine_hash(MODEL), engine_hash(OTHER)
    found = record_of(STACK, ENGINES)
    assert found == StackRecord(
        "site",
        "/s.yaml",
        {GATEWAY: gateway_hash(STACK), "site-a": mine, "site-a-2": mine, "site-b": theirs},
        {GATEWAY: "", "site-a": "a", "site-a-2": "a", "site-b": "b"},
    )
    with held("site"):
        write_record(found)
    assert read_record("site") == found


def test_engines_with_the_same_settings_keep_their_names() -> None:
    assert engine_names(STACK, None, ()) == ENGINES
    record = record_of(STACK, ENGINES)
    assert engine_names(STACK, record, ["site-a"]) == ENGINES
    # one that runs comes first, and the only one that is left
    assert engine_names(STACK, record, ["site-a-2"])["a"] == ("site-a-2", "site-a")
    one = replace(STACK, models=(replace(MODEL, replicas=1), OTHER))
    assert engine_names(one, record, ["site-a-2"])["a"] == ("site-a-2",)


def test_a_new_version_next_to_a_running_one_has_another_name() -> None:
    record = record_of(STACK, ENGINES)
    changed = replace(STACK, models=(replace(MODEL, model="x"), OTHER))
    assert engine_names(changed, record, ["site-a"])["a"] == ("site-a-2", "site-a.v2")
    both = engine_names(changed, record, ["site-a", "site-a-2", "site-a.v2"])
    # a service of another stack does not take a name
    assert both["a"] == ("site-a.v2", "site-a.v3")
    assert engine_names(changed, record, [])["a"] == ("site-a", "site-a-2")
    named = replace(changed, models=(*changed.models, StackModel("a.v2", "y")))
    assert engine_names(named, record, ["site-a", "site-a-2"])["a"] == ("site-a.v3", "site-a.v4")


def test_the_settings_of_another_model_are_not_ours() -> None:
    record = record_of(STACK, ENGINES)
    swapped = replace(record, models={**record.models, "site-a": "b"})
    assert engine_names(STACK, swapped, ["site-a"])["a"] == ("site-a-2", "site-a.v2")


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


def test_the_folder_of_another_stack_stays() -> None:
    with held("one"):
        write_record(replace(RECORD, name="one"))
        with held("two"):
            pass
    assert [path.name for path in stack_record.stacks_dir().iterdir()] == ["one"]
