"""What a failed launch shows: its log's last lines first, the diagnosis with the matched line
last."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import message, text
from gaudi_launch.services.diagnosis.diagnose import diagnose
from gaudi_launch.services.diagnosis.endings import status_words
from gaudi_launch.services.diagnosis.failure import (
    causes,
    failure,
    judged_log,
    last_lines,
    read_log,
)
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.process.supervise import EngineOutcome

DIED = EngineOutcome("died", 1, LaunchProgress())


def detail(log: Path) -> list[str]:
    shown = failure(DIED, log).detail
    assert shown is not None
    return shown.splitlines()


def test_the_diagnosis_is_the_last_thing_on_the_screen(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    usage = "".join(f"  [--option-{number} VALUE]\n" for number in range(60))
    error = (
        "api_server.py: error: argument --dtype: invalid choice: 'int8' (choose from auto, half)"
    )
    log.write_text(f"usage: api_server.py\n{usage}{error}\nINFO the end\n")
    lines = detail(log)
    assert lines[:2] == ["The last lines of its log:", "  [--option-32 VALUE]"]
    assert lines[-4:] == [
        "",
        "likely cause: An option has a value that the engine does not accept.",
        f"  > {error}",
        "  The matched line names the option and the accepted values: correct the value after --.",
    ]


def test_an_error_without_a_signature_is_shown_however_far_up_it_is(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "Traceback (most recent call last):\nZeroDivisionError: division by zero\n"
        + "INFO later\n" * 50
    )
    lines = detail(log)
    assert (
        "likely cause: No known cause matches this error in the log: ZeroDivisionError: "
        "division by zero"
    ) in lines
    assert lines.index("  > ZeroDivisionError: division by zero") > lines.index("INFO later")


def test_a_full_disk_is_the_cause_although_it_kept_the_log_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("ERROR: not written\nINFO half a li")
    full = SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=4096, f_files=10, f_ffree=5)
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    lines = detail(log)
    # what the log shows in addition is named as an error of its own
    assert [each for each in lines if each.startswith("likely cause")] == [
        "likely cause: A disk is full.",
        "likely cause: No known cause matches this error in the log: not written",
    ]
    assert f"  > kernel: No space left on device: {tmp_path} (0 bytes free)" in lines
    assert judged_log(log).splitlines()[1:2] == ["INFO half a li"]


OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 (1)MB"
LOADING = "INFO 11-21 03:02:41 [loader.py:1] Starting to load model m..."


def ended(kind: Literal["died", "stuck", "not_started"], status: int | None) -> EngineOutcome:
    return EngineOutcome(kind, status, LaunchProgress(), detail="300")


def test_an_engine_that_could_not_be_started_has_no_log_to_show(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("INFO of an earlier run\n")
    error = failure(ended("not_started", None), log)
    assert (error.text, error.exit_code, error.detail) == (
        message("serve.not_started", why="300"),
        ExitCode.ENGINE,
        None,
    )


def test_an_engine_that_died_is_reported_with_phase_status_and_remedy(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{LOADING}\n{OOM}\n")
    error = failure(ended("died", -6), log, "/my models/Q")
    assert (error.text, error.exit_code) == (
        message(
            "serve.died",
            phase=text("serve.phase_load"),
            status=status_words(-6),
            log=str(log),
        ),
        ExitCode.ENGINE,
    )
    assert error.detail is not None
    assert error.detail.splitlines() == [
        text("serve.last_lines"),
        LOADING,
        OOM,
        "",
        f"{text('serve.word_cause')}: {text('diagnose.device_oom_weights')}",
        f"  > {OOM}",
        f"  {text('diagnose.device_oom_weights_fix')}",
        "  $ gaudi-launch fit '/my models/Q'",
    ]


def test_an_engine_that_got_stuck_is_reported_with_phase_and_time(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{LOADING}\n")
    error = failure(ended("stuck", -9), log)
    assert (error.text, error.exit_code) == (
        message("serve.stuck", phase=text("serve.phase_load"), seconds="300", log=str(log)),
        ExitCode.ENGINE,
    )
    assert error.detail is not None
    assert error.detail.splitlines() == [
        text("serve.last_lines"),
        LOADING,
        "",
        f"{text('serve.word_cause')}: {text('diagnose.stuck')}",
        f"  {text('diagnose.stuck_fix')}",
        "  $ top",
    ]


def test_an_engine_that_was_killed_is_reported_as_that(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{LOADING}\n")
    error = failure(ended("died", -9), log)
    assert error.detail is not None
    assert error.detail.splitlines()[3:] == [
        f"{text('serve.word_cause')}: {text('diagnose.killed')}",
        f"  {text('diagnose.killed_fix')}",
        "  $ dmesg | tail",
    ]


def test_without_a_known_cause_that_is_what_is_said() -> None:
    assert causes(diagnose("INFO loading\n", exit_status=1)) == [text("serve.no_cause")]


def test_at_most_three_causes_are_shown_the_likeliest_first() -> None:
    lines = (
        "SafetensorError: odd",
        "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
        OOM,
        "OSError: [Errno 28] No space left on device",
    )
    found = diagnose("\n".join(lines), exit_status=1)
    ids = ("disk_full", "shards", "device_oom", "compile_failed")
    assert tuple(cause.id for cause in found.causes) == ids
    shown = [line for line in causes(found) if line.startswith(text("serve.word_cause"))]
    assert shown == [f"{text('serve.word_cause')}: {text(f'diagnose.{id}')}" for id in ids[:3]]
    assert "  $ gaudi-launch fit MODEL" in causes(found)


def test_of_a_huge_log_its_last_four_mebibytes_are_read(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"a" * 10 + b"\xff" + b"b" * ((4 << 20) - 1))
    assert read_log(log) == "\ufffd" + "b" * ((4 << 20) - 1)
    log.write_bytes(b"short")
    assert read_log(log) == "short"
    assert read_log(tmp_path / "missing.log") == ""


def test_the_last_thirty_lines_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("".join(f"{number}\n" for number in range(40)))
    assert last_lines(log) == [str(number) for number in range(10, 40)]


@pytest.mark.parametrize(
    ("written", "judged"),
    [
        ("INFO half a li", "INFO half a li\nkernel: No space\nkernel: No room\n"),
        ("INFO a line\n", "INFO a line\nkernel: No space\nkernel: No room\n"),
        ("", "kernel: No space\nkernel: No room\n"),
    ],
)
def test_each_full_disk_has_its_line_after_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, judged: str
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(written)
    asked = []

    def full(path: Path) -> list[str]:
        asked.append(path)
        return ["No space", "No room"]

    monkeypatch.setattr("gaudi_launch.services.diagnosis.failure.full_disks", full)
    assert (judged_log(log), asked) == (judged, [log])
    monkeypatch.setattr("gaudi_launch.services.diagnosis.failure.full_disks", lambda path: [])
    assert judged_log(log) == written
