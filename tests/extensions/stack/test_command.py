"""``stack logs``, ``restart`` and ``apply`` as commands: names, consent, output."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.stack import case as stack
from gaudi_launch.extensions.stack.change import ChangedStack
from gaudi_launch.extensions.stack.stack_plan import Downtime
from gaudi_launch.extensions.stack.stack_record import StackRecord, held, write_record
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english", "own_folders")


def started(name: str = "site") -> None:
    """Record a stack of two models and a gateway, with a log of each service."""
    names = {f"{name}-gateway": "", f"{name}-chat": "chat", f"{name}-e": "embed"}
    with held(name):
        write_record(StackRecord(name, f"/{name}.yaml", dict.fromkeys(names, "sha256:1"), names))
    for each in names:
        folder = store.service_dir(each)
        folder.mkdir(parents=True)
        state = {"name": each, "phase": "stopped", "outcome": "stopped"}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "engine.log").write_bytes(f"first\nlast of {each}".encode())


def test_logs_name_the_service_of_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    started()
    assert output(capsys, "stack", "logs", "-n", "1")[:2] == (
        0,
        "site-gateway | last of site-gateway\n"
        "site-chat    | last of site-chat\n"
        "site-e       | last of site-e\n",
    )
    assert (
        output(capsys, "stack", "logs", "embed")[1] == "site-e | first\nsite-e | last of site-e\n"
    )
    code, lines, _ = output(capsys, "stack", "logs", "gateway", "--json", "-f")
    assert (code, [json.loads(line) for line in lines.splitlines()]) == (
        0,
        [
            {"schema": 1, "service": "site-gateway", "line": "first"},
            {"schema": 1, "service": "site-gateway", "line": "last of site-gateway"},
        ],
    )


def test_a_stack_is_named_where_several_were_started(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("logs", "restart"):
        code, _, error = output(capsys, "stack", command)
        assert (code, "No stack runs." in error) == (2, True)
    started()
    code, _, error = output(capsys, "stack", "restart", "nobody")
    assert (code, "Its models: chat, embed." in error) == (2, True)
    started("other")
    code, _, error = output(capsys, "stack", "logs", "chat")
    assert (code, "Several stacks were started: other, site." in error) == (2, True)
    shown = output(capsys, "stack", "logs", "chat", "--stack", "other", "-n", "1")[1]
    assert shown == "other-chat | last of other-chat\n"


def test_a_downtime_is_stated_and_needs_consent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = SimpleNamespace(
        path=tmp_path / "s.yaml", name="s", gateway=SimpleNamespace(url="http://h:1"), models=()
    )
    changes = SimpleNamespace(
        stack=file,
        downtimes=(Downtime("chat", 60.0, 150.0, has_load=True), Downtime("e", 0, 0, False)),
        moved_from="http://h:2",
    )

    def applied(path: Path, reporter: object, options: object, agree: object) -> object:
        assert callable(agree)
        done = ChangedStack(("s-chat.v2",), ("s-chat",), "renewed")
        return file, done if agree(changes) else None

    monkeypatch.setattr(stack, "apply", applied)
    code, out, error = output(capsys, "stack", "apply", "s.yaml")
    assert (code, out, error.splitlines()) == (
        2,
        "",
        [
            "Without an answer for 60 s to 2 min (load and warm-up, estimated): chat. "
            "The cards do not suffice for the new version next to the old one.",
            "Without an answer for a time that is not known: e. "
            "The cards do not suffice for the new version next to the old one.",
            "The gateway moves from http://h:2 to http://h:1: the old address no longer answers.",
            f"gaudi-launch: Applying {file.path} interrupts requests (chat, e). Without a terminal "
            "it cannot be confirmed. Run the command again with --yes.",
        ],
    )
    code, out, _ = output(capsys, "stack", "apply", "s.yaml", "--yes", "--json")
    assert (code, json.loads(out)) == (
        0,
        {
            "schema": 1,
            "stack": "s",
            "url": "http://h:1",
            "models": [],
            "started": ["s-chat.v2"],
            "ended": ["s-chat"],
            "gateway": "renewed",
        },
    )


def test_the_schema_is_printed_and_models_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "stack", "init", "--schema")
    assert (code, json.loads(out)["title"].startswith("A stack")) == (0, True)
    code, _, error = output(capsys, "stack", "init")
    assert (code, "No model is given." in error) == (2, True)
