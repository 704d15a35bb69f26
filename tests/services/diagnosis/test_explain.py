"""A log, or a service with its log, record and history, explained as one."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.services.diagnosis.diagnose import Cause, Diagnosis
from gaudi_launch.services.diagnosis.explain import (
    Explanation,
    explain_log,
    explain_service,
    lost,
)
from gaudi_launch.services.diagnosis.signatures import KILLED, QUIT, STUCK, signatures
from gaudi_launch.services.engine_counters import EngineCounters
from gaudi_launch.services.history import HistoryRing, HistoryRow
from gaudi_launch.services.log.excerpt import Excerpt
from gaudi_launch.services.state import identity
from gaudi_launch.services.state.registry import ServiceRecord
from tests.support.clock import utc

KNOWN = {each.id: each for each in (*signatures(), KILLED, STUCK, QUIT)}
OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 (1)MB"
PREEMPTED = "WARNING 04-28 [s.py:1] Sequence group 1 is preempted by PreemptionMode.RECOMPUTE mode"
LOADING = "INFO 11-21 03:02:41 [loader.py:1] Starting to load model m..."
UP = "INFO:     Application startup complete."
DOWN = "INFO:     Shutting down"
# 14:00 UTC
TWO = 1_800_021_600.0


__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("utc")


def cause(id: str, *evidence: tuple[int, str], words: str = "", commands: str = "") -> Cause:
    """Return a cause of the table; ``commands`` replaces its commands by this one."""
    signature = KNOWN[id]
    return Cause(
        id=id,
        title=message(f"diagnose.{words or id}"),
        remedy=message(f"diagnose.{words or id}_fix"),
        commands=(commands,) if commands else signature.commands,
        evidence=evidence,
        permanent=signature.permanent,
        source=signature.source,
    )


def service(folder: Path, *lines: str, alive: bool = False, **state: object) -> ServiceRecord:
    """Return the record of a service whose engine wrote these lines."""
    if lines:
        (folder / "engine.log").write_text("".join(f"{line}\n" for line in lines))
    return ServiceRecord("qwen", folder, state, alive)


def excerpt(*lines: str) -> Excerpt:
    return Excerpt("".join(f"{line}\n" for line in lines), len(lines))


NOTHING = Excerpt("", 0)


# --- a log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("args: Namespace(port=1, model='/models/Q')", "gaudi-launch fit /models/Q"),
        (
            "non-default args: {'model': '/my models/Q', 'port': 1}",
            "gaudi-launch fit '/my models/Q'",
        ),
        ("Initializing an engine with config: model='org/Q', x", "gaudi-launch fit org/Q"),
        ("args: Namespace(served_model='/models/Q')", "gaudi-launch fit MODEL"),
        ("args: Namespace(model='')", "gaudi-launch fit MODEL"),
    ],
)
def test_the_commands_of_a_log_are_for_the_model_that_it_names(
    tmp_path: Path, line: str, command: str
) -> None:
    log = tmp_path / "engine.log"
    first = f"INFO 11-21 03:02:42 [api_server.py:1043] {line}"
    log.write_text(f"{first}\n{OOM}\n")
    assert explain_log(log, 1) == Explanation(
        log=str(log),
        found=Diagnosis(
            causes=(cause("device_oom", (2, OOM), commands=command),), phase="start", failed=True
        ),
        content=excerpt(first, OOM),
        note=None,
        history=(),
        simulated=False,
    )


def test_the_commands_against_slow_requests_are_for_the_model_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    first = "INFO 11-21 [a.py:1] args: Namespace(model='/models/Q')"
    log.write_text(f"{first}\n{UP}\n{PREEMPTED}\n")
    assert explain_log(log, None).found == Diagnosis(
        causes=(),
        phase="ready",
        failed=False,
        came_up=True,
        findings=(cause("preempted", (3, PREEMPTED), commands="gaudi-launch fit /models/Q"),),
    )


def test_a_log_from_a_pipe_is_judged_with_the_exit_status_that_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for status, causes in ((137, (cause("killed"),)), (0, ())):
        content = io.BytesIO(f"{LOADING}\n".encode())
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))
        assert explain_log(None, status) == Explanation(
            "-", Diagnosis(causes, "load", failed=bool(causes)), excerpt(LOADING)
        )


@pytest.mark.parametrize("text", ["", "\n \t\n"])
def test_a_log_without_a_word_is_refused_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(text)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    for path, name in ((log, str(log)), (None, "-")):
        with pytest.raises(LaunchError) as refused:
            explain_log(path, 1)
        error = refused.value
        assert (error.text, error.exit_code) == (
            message("diagnose.empty", path=name),
            ExitCode.FAILED,
        )


# --- a service that ended ------------------------------------------------------------------------


def test_a_service_that_failed_is_judged_by_its_record_and_its_log(tmp_path: Path) -> None:
    died = service(
        tmp_path,
        LOADING,
        OOM,
        phase="failed",
        outcome="died",
        status=1,
        model="/my models/Q",
        simulated=True,
    )
    assert explain_service(died) == Explanation(
        log="qwen",
        found=Diagnosis(
            causes=(
                cause(
                    "device_oom",
                    (2, OOM),
                    words="device_oom_weights",
                    commands="gaudi-launch fit '/my models/Q'",
                ),
            ),
            phase="load",
            failed=True,
        ),
        content=excerpt(LOADING, OOM),
        note=None,
        history=(),
        simulated=True,
    )


@pytest.mark.parametrize("state", [{}, {"model": ""}, {"model": None}])
def test_a_service_without_a_recorded_model_keeps_the_placeholder(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    died = service(tmp_path, OOM, phase="failed", outcome="died", status=1, **state)
    assert explain_service(died).found.causes == (cause("device_oom", (1, OOM)),)


@pytest.mark.parametrize("value", [None, False, 1, "yes"])
def test_only_a_recorded_true_makes_the_cards_simulated(tmp_path: Path, value: object) -> None:
    state = service(tmp_path, LOADING, phase="failed", outcome="died", status=1, simulated=value)
    assert explain_service(state).simulated is False


@pytest.mark.parametrize(
    ("outcome", "status", "causes", "failed"),
    [
        ("died", -9, (cause("killed"),), True),
        ("died", 0, (cause("quit"),), True),
        ("died", 1, (), True),
        ("died", None, (), True),
        ("stuck", -9, (cause("stuck"),), True),
        ("stopped", -15, (), False),
        ("stopped", 1, (), False),
    ],
)
def test_the_recorded_outcome_and_status_explain_a_log_without_an_error(
    tmp_path: Path, outcome: str, status: int | None, causes: tuple[Cause, ...], failed: bool
) -> None:
    phase = "stopped" if outcome == "stopped" else "failed"
    ended = service(tmp_path, LOADING, phase=phase, outcome=outcome, status=status)
    assert explain_service(ended) == Explanation(
        "qwen",
        Diagnosis(causes, "load", failed),
        excerpt(LOADING),
        message("diagnose.was_stopped", name="qwen") if outcome == "stopped" else None,
    )


def test_the_status_of_the_command_line_replaces_the_recorded_one(tmp_path: Path) -> None:
    ended = service(tmp_path, LOADING, phase="failed", outcome="died", status=1)
    assert explain_service(ended, 137).found == Diagnosis((cause("killed"),), "load", failed=True)
    assert explain_service(ended, 0).found == Diagnosis((cause("quit"),), "load", failed=True)


def test_a_service_that_was_stopped_while_it_failed_has_no_note_that_hides_it(
    tmp_path: Path,
) -> None:
    ended = service(tmp_path, LOADING, OOM, phase="stopped", outcome="stopped", status=1)
    explained = explain_service(ended)
    assert explained.note is None
    assert (explained.found.failed, [each.id for each in explained.found.causes]) == (
        True,
        ["device_oom"],
    )


# --- a service whose launcher is gone -------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "phase"), [({"phase": "load"}, "load"), ({"phase": ""}, "start"), ({}, "start")]
)
def test_a_lost_service_failed_in_the_phase_of_its_record(
    tmp_path: Path, state: dict[str, Any], phase: str
) -> None:
    gone = service(tmp_path, LOADING, UP, DOWN, **state)
    assert explain_service(gone) == Explanation(
        "qwen",
        Diagnosis((), phase, failed=True, came_up=True),
        excerpt(LOADING, UP, DOWN),
        message("diagnose.lost", name="qwen"),
    )


def test_a_lost_service_with_an_error_in_its_log_failed_where_the_log_shows(
    tmp_path: Path,
) -> None:
    gone = service(tmp_path, LOADING, OOM, phase="ready")
    explained = explain_service(gone)
    assert (explained.found.phase, explained.found.failed, explained.note) == (
        "load",
        True,
        message("diagnose.lost", name="qwen"),
    )


@pytest.mark.parametrize(
    ("boot", "now", "id"),
    [
        ("first", "first", "diagnose.lost"),
        ("first", "second", "diagnose.lost_rebooted"),
        # the kernel's name for this boot cannot be read
        ("first", "", "diagnose.lost"),
    ],
)
def test_a_service_that_a_reboot_ended_is_told_from_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str, now: str, id: str
) -> None:
    monkeypatch.setattr("gaudi_launch.services.state.registry.boot_id", lambda: now)
    launcher = identity.Identity(7, 7, boot).to_json()
    gone = service(tmp_path, LOADING, phase="load", launcher=launcher)
    assert lost(gone) == id
    assert explain_service(gone).note == message(id, name="qwen")


# --- a service that runs --------------------------------------------------------------------------


def test_a_record_of_an_earlier_run_does_not_judge_the_one_that_runs(tmp_path: Path) -> None:
    runs = service(tmp_path, LOADING, alive=True, phase="load", outcome="died", status=-9)
    assert explain_service(runs) == Explanation(
        "qwen", Diagnosis((), "load", failed=False), excerpt(LOADING), None
    )


def test_the_status_of_the_command_line_counts_for_a_service_that_runs(tmp_path: Path) -> None:
    runs = service(tmp_path, LOADING, alive=True, phase="load")
    assert explain_service(runs, 137).found == Diagnosis((cause("killed"),), "load", failed=True)


def test_a_service_that_its_launcher_found_ready_is_ready(tmp_path: Path) -> None:
    """A gateway logs no line of its own for that."""
    ready = service(tmp_path, LOADING, alive=True, phase="ready")
    assert explain_service(ready).found == Diagnosis((), "ready", failed=False)
    died = service(tmp_path, LOADING, OOM, alive=True, phase="ready")
    assert explain_service(died).found.phase == "load"


def test_a_restarted_service_tells_how_often_and_why(tmp_path: Path) -> None:
    def note(**state: object) -> object:
        return explain_service(service(tmp_path, LOADING, alive=True, phase="load", **state)).note

    assert note(restarts=2, error="The disk was full.") == message(
        "diagnose.started_again", name="qwen", count=2, why="The disk was full."
    )
    assert note(restarts=1) == message("diagnose.started_again", name="qwen", count=1, why="-")
    assert note(restarts=0) is None
    ended = service(tmp_path, LOADING, phase="failed", outcome="died", status=1, restarts=2)
    assert explain_service(ended).note is None


# --- a service whose engine wrote nothing ---------------------------------------------------------


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("simulated", [False, True])
def test_an_engine_that_wrote_nothing_yet_has_not_failed(
    tmp_path: Path, empty: bool, simulated: bool
) -> None:
    if empty:
        (tmp_path / "engine.log").write_text("")
    waits = service(tmp_path, alive=True, phase="start", simulated=simulated)
    assert explain_service(waits) == Explanation(
        "qwen",
        Diagnosis((), "start", failed=False),
        NOTHING,
        message("diagnose.not_begun", name="qwen"),
        simulated=simulated,
    )


@pytest.mark.parametrize("outcome", ["not_started", "failed"])
def test_the_log_of_an_earlier_run_does_not_explain_an_engine_that_never_ran(
    tmp_path: Path, outcome: str
) -> None:
    never = service(
        tmp_path, OOM, phase="failed", outcome=outcome, error="No such file", status=None
    )
    assert explain_service(never) == Explanation(
        "qwen",
        Diagnosis((), "start", failed=True),
        NOTHING,
        message("diagnose.no_engine", name="qwen", why="No such file"),
    )


@pytest.mark.parametrize(
    ("outcome", "status", "causes"),
    [
        ("died", -9, (cause("killed"),)),
        ("died", 0, (cause("quit"),)),
        ("died", "odd", ()),
        ("stuck", -9, (cause("stuck"),)),
    ],
)
def test_of_an_engine_that_ended_without_a_word_the_status_remains(
    tmp_path: Path, outcome: str, status: object, causes: tuple[Cause, ...]
) -> None:
    silent = service(tmp_path, phase="failed", outcome=outcome, status=status, error="It ended.")
    assert explain_service(silent) == Explanation(
        "qwen",
        Diagnosis(causes, "start", failed=True),
        NOTHING,
        message("diagnose.no_engine", name="qwen", why="It ended."),
    )


def test_a_silent_engine_that_was_stopped_has_not_failed(tmp_path: Path) -> None:
    stopped = service(tmp_path, phase="stopped", outcome="stopped", status=-15)
    assert explain_service(stopped) == Explanation(
        "qwen",
        Diagnosis((), "start", failed=False),
        NOTHING,
        message("diagnose.was_stopped", name="qwen"),
    )


def test_a_silent_engine_whose_launcher_is_gone_is_lost(tmp_path: Path) -> None:
    assert explain_service(service(tmp_path, phase="load")) == Explanation(
        "qwen",
        Diagnosis((), "start", failed=True),
        NOTHING,
        message("diagnose.lost", name="qwen"),
    )


# --- the history ----------------------------------------------------------------------------------


def _record(folder: Path, *, since: int = 0) -> None:
    """Write one row each minute from 13:50 on: the 20th has 3 preemptions, the 40th 5 more."""
    ring = HistoryRing(folder)
    for number in range(since, 60):
        preemptions = 3.0 * (number >= 20) + 5.0 * (number >= 40)
        counters = EngineCounters(running=8.0, kv_use=0.5, preemptions=preemptions)
        ring.add(HistoryRow(TWO - 600 + 60 * number, None, counters))
    ring.close()


@pytest.mark.parametrize("began", [TWO - 600, int(TWO) - 600, None, "yesterday"])
def test_what_began_in_a_service_is_part_of_its_explanation(tmp_path: Path, began: object) -> None:
    _record(tmp_path)
    runs = service(tmp_path, LOADING, alive=True, phase="load", began=began)
    assert explain_service(runs) == Explanation(
        "qwen",
        Diagnosis((), "load", failed=False),
        excerpt(LOADING),
        history=(message("diagnose.history_preemptions", at="14:30", count="5"),),
    )


@pytest.mark.parametrize("began", [TWO + 1800, int(TWO) + 1800])
def test_the_history_before_a_services_start_does_not_count(tmp_path: Path, began: float) -> None:
    _record(tmp_path)
    runs = service(tmp_path, LOADING, alive=True, phase="load", began=began)
    assert explain_service(runs).history == ()
