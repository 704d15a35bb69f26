"""stop and restart: what is reported, what is refused before anything ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import stop as cases
from gaudi_launch.app.report import Silent
from gaudi_launch.app.stop import EndedService, check_drain, end, end_orphans, left_error, restart
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.planning.plan import Command
from gaudi_launch.services import preflight, run_record
from gaudi_launch.services import stop as stopping
from gaudi_launch.services.state import orphans, registry, store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.job import ServiceJob
from gaudi_launch.services.state.orphans import Orphan
from gaudi_launch.services.state.registry import ServiceRecord
from gaudi_launch.services.stop import Stopped
from tests.support.refusals import refused
from tests.support.reporters import Lines

pytestmark = pytest.mark.usefixtures("plain_english")

JOB = ServiceJob(
    "chat",
    "m",
    "/m",
    "cpu@1",
    "http://127.0.0.1:9",
    Command(("engine",), {}),
    modules=(2, 3),
    secrets=("VLLM_API_KEY",),
)


def orphan(pid: int, folder: str = "/x", *, elsewhere: bool = False) -> Orphan:
    return Orphan(Identity(pid, 1, "boot"), "engine", folder, elsewhere=elsewhere)


@pytest.fixture
def chat(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceRecord:
    """Return a recorded service whose cards nothing else uses."""
    folder = store.service_dir("chat")
    folder.mkdir(parents=True)
    store.write(folder, "job.json", JOB.to_json())
    found = ServiceRecord("chat", folder, {"modules": [2, 3], "engine_began": 5.0}, True)
    monkeypatch.setattr(registry, "find", lambda name: found)
    monkeypatch.setattr(stopping, "still_busy", lambda modules: [])
    return found


def stopped(
    monkeypatch: pytest.MonkeyPatch, result: Stopped, *events: tuple[str, float]
) -> list[tuple[ServiceRecord, float]]:
    """Let a stop report these events and end so; record its calls."""
    calls: list[tuple[ServiceRecord, float]] = []

    def stop(service: ServiceRecord, drain: float, say: Any) -> Stopped:
        calls.append((service, drain))
        for what, value in events:
            say(what, value)
        return result

    monkeypatch.setattr(stopping, "stop", stop)
    return calls


@pytest.mark.parametrize(
    ("seconds", "valid"), [(0, True), (86400, True), (-1, False), (86401, False)]
)
def test_a_drain_lasts_at_most_a_day(seconds: float, valid: bool) -> None:
    if valid:
        check_drain(seconds)
        return
    with refused("services.drain", ExitCode.USAGE, found=seconds):
        check_drain(seconds)


def test_each_thing_that_is_waited_for_is_said_once(
    chat: ServiceRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Stopped(chat, True, 1, ())
    events = (("drain", 2.0), ("drain", 1.0), ("end", 5.4), ("end", 4.0))
    calls = stopped(monkeypatch, result, *events)
    monkeypatch.setattr(stopping, "still_busy", lambda modules: list(modules[:1]))
    monkeypatch.setattr(run_record, "read_run_record", lambda folder, since: (folder, since))
    lines = Lines()
    ended = end(chat, 7.0, lines)
    assert calls == [(chat, 7.0)]
    assert lines.lines == [
        text("services.stop_drain", name="chat", count="2"),
        text("services.stop_end", name="chat", count="5"),
    ]
    assert ended == EndedService(result, (2,), (chat.folder, 5.0))  # type: ignore[arg-type]
    assert (ended.name, ended.was_running, chat.folder.is_dir()) == ("chat", True, True)


def test_a_service_is_forgotten_where_that_is_requested(
    chat: ServiceRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(monkeypatch, Stopped(chat, False, 0, ()))
    ended = end(chat, 0, Silent(), forget=True)
    assert (ended.was_running, ended.busy, chat.folder.exists()) == (False, (), False)
    assert EndedService(Stopped(chat, False, 0, (orphan(1),)), ()).was_running


def test_processes_that_do_not_end_are_named_and_the_folder_stays(
    chat: ServiceRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(monkeypatch, Stopped(chat, True, 0, (), (orphan(7), orphan(9))))
    with refused("services.orphans_left", ExitCode.FAILED, pids="7, 9"):
        end(chat, 0, Silent(), forget=True)
    assert chat.folder.is_dir()
    assert left_error([orphan(3)]).text.values == {"pids": "3"}


def test_files_of_ended_processes_are_removed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[Path] = []
    found = [orphan(1, "/a"), orphan(2, "/a"), orphan(3, "/b", elsewhere=True)]
    monkeypatch.setattr(orphans, "end", lambda given: list(given)[:1])
    monkeypatch.setattr(stopping, "tidy", tidied.append)
    assert (end_orphans(found), tidied) == ([found[0]], [Path("/a")])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ServiceJob, str]]:
    """Record what is started again."""
    found: list[tuple[ServiceJob, str]] = []
    monkeypatch.setattr(
        preflight,
        "start_detached",
        lambda job, environment: found.append((job, environment["VLLM_API_KEY"])),
    )
    return found


def test_a_restart_has_the_same_job_and_this_environment(
    chat: ServiceRecord,
    started: list[tuple[ServiceJob, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    calls = stopped(monkeypatch, Stopped(chat, True, 0, ()))
    restart("chat", 3.0, Silent())
    assert (calls, started) == ([(chat, 3.0)], [(JOB, "secret")])


def test_a_restart_that_cannot_be_ends_nothing(
    chat: ServiceRecord,
    started: list[tuple[ServiceJob, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = stopped(monkeypatch, Stopped(chat, True, 0, ()))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with refused("services.secrets", ExitCode.USAGE, name="chat", names="VLLM_API_KEY"):
        restart("chat", 3.0, Silent())
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    with refused("services.drain", ExitCode.USAGE, found=-1):
        restart("chat", -1, Silent())
    (chat.folder / "job.json").write_text("{")
    with pytest.raises(LaunchError) as raised:
        restart("chat", 3.0, Silent())
    assert raised.value.exit_code is ExitCode.FAILED
    assert str(chat.folder / "job.json") in str(raised.value)
    assert (calls, started) == ([], [])


def test_cards_that_another_process_took_are_named(
    chat: ServiceRecord,
    started: list[tuple[ServiceJob, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    stopped(monkeypatch, Stopped(chat, True, 0, ()))
    monkeypatch.setattr(stopping, "still_busy", list)
    with refused("services.cards_taken", ExitCode.MACHINE, name="chat", cards="2,3"):
        restart("chat", 3.0, Silent())
    assert started == []
    assert cases.EndedService(replace(Stopped(chat, True, 0, ())), (2, 3)).busy == (2, 3)
