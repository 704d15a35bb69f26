"""`gaudi-launch why` on files, pipes and services."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.services.log import excerpt
from gaudi_launch.core.services.state import registry, store
from tests.support.cli import reading

pytestmark = pytest.mark.usefixtures("plain_english")

OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 (1)MB\n"


def test_a_log_in_chinese_has_chinese_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("INFO starting\n" + OOM)
    assert run(["why", str(log), "--lang", "zh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("原因 1：显存不足（OOM）。")
    assert lines[at + 1].startswith("  处理方法：")
    assert f"  第 2 行：{OOM.strip()}" in lines[at:]


@pytest.mark.parametrize(
    "line",
    [
        "args: Namespace(model='/models/Q', port=1)",
        "non-default args: {'model': '/models/Q', 'port': 1}",
    ],
)
def test_the_remedies_of_a_log_name_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"INFO 11-21 03:02:42 [api_server.py:1043] {line}\n{OOM}")
    assert reading(capsys, "why", str(log))["causes"][0]["commands"] == [
        "gaudi-launch inspect /models/Q"
    ]


def test_a_pipe_and_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(OOM))
    writer.start()
    assert reading(capsys, "why", str(pipe))["causes"][0]["id"] == "device_oom"
    writer.join()
    # so much that its middle is not kept
    monkeypatch.setattr(excerpt, "HEAD_BYTES", 10_000)
    monkeypatch.setattr(excerpt, "TAIL_BYTES", 20_000)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n" * 300_000 + OOM.encode())))
    shown = reading(capsys, "why", "-")
    assert shown["causes"][0]["evidence"][0]["line"] == 300_001


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [(b"\x7fELF\0\0", 2, "is not a text file"), (b"", 1, "is empty"), (None, 2, "cannot be read")],
)
def test_what_is_no_log(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    code: int,
    sentence: str,
) -> None:
    log = tmp_path / "thing"
    if content is not None:
        log.write_bytes(content)
    assert run(["why", str(log)]) == code
    assert sentence in capsys.readouterr().err
    assert run(["why", str(tmp_path)]) == 2


UP = "INFO:     Application startup complete.\n"
WARM = (
    "INFO 11-21 03:03:01 [r.py:2587] [Warmup][Decode][204/416] batch_size:64 num_blocks:512 "
    "free_mem:14.93 GiB\n"
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (UP, "No failure was found: the log ends in the phase"),
        (WARM, "'warming up decode' (204/416), before the engine answered"),
        (f"{UP}RuntimeError: Graph compile failed.\n", "The engine started and did not fail."),
    ],
)
def test_a_log_without_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, sentence: str
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(content)
    assert run(["why", str(log)]) == 0
    out, _ = capsys.readouterr()
    assert sentence in out and ("Cause 1: A graph could not be compiled" in out) == (
        "Graph" in content
    )


def test_without_a_name_what_failed_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why"]) == 2
    assert "There is no service" in capsys.readouterr().err
    for name, ended, text in (
        ("old", 10.0, "OSError: [Errno 28] No space left on device\n"),
        ("new", 20.0, OOM),
    ):
        folder = tmp_path / "state/gaudi-launch/services" / name
        folder.mkdir(parents=True)
        (folder / "engine.log").write_text(text)
        state = {"schema": 1, "phase": "failed", "outcome": "died", "status": 1, "ended": ended}
        (folder / "state.json").write_text(json.dumps(state))
    assert reading(capsys, "why")["log"] == "new"
    assert reading(capsys, "why", "old")["causes"][0]["id"] == "disk_full"


def service(tmp_path: Path, name: str, log: str | None, **state: object) -> None:
    folder = tmp_path / "state/gaudi-launch/services" / name
    folder.mkdir(parents=True)
    if log is not None:
        (folder / "engine.log").write_text(log)
    (folder / "state.json").write_text(
        json.dumps({"schema": 1, "name": name, "began": 1.0, **state})
    )


STOPPED = {"phase": "stopped", "outcome": "stopped"}
EARLIER = {"pid": 1, "ticks": 1, "boot": "another"}
LOADING = "INFO 11-21 03:02:41 [loader.py:1] Starting to load model m...\n"


def failed(outcome: str, **state: object) -> dict[str, object]:
    return {"phase": "failed", "outcome": outcome, **state}


@pytest.mark.parametrize(
    ("log", "state", "fails", "causes", "sentence"),
    [
        (LOADING, failed("stuck", status=0), True, ["stuck"], "made no progress"),
        (LOADING, failed("died", status=0), True, ["quit"], "exited without an error"),
        (LOADING, {**STOPPED, "status": -15}, False, [], "stopped by its user"),
        (LOADING, {"phase": "load"}, True, [], "exited without a message"),
        (
            LOADING,
            {"phase": "load", "launcher": EARLIER},
            True,
            [],
            "rebooted while 'a' was running",
        ),
        (None, failed("not_started", detail="No such file"), True, [], "never ran: No"),
        ("", failed("failed", error="The cache broke"), True, [], "never ran: The c"),
        (None, STOPPED, False, [], "stopped by its user"),
        (None, failed("died", status=-9), True, ["killed"], "killed from outside"),
    ],
)
def test_how_a_service_ended(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    log: str | None,
    state: dict[str, object],
    fails: bool,
    causes: list[str],
    sentence: str,
) -> None:
    service(tmp_path, "a", log, **state)
    shown = reading(capsys, "why", "a")
    assert (shown["failed"], [cause["id"] for cause in shown["causes"]]) == (fails, causes)
    assert run(["why", "a"]) == 0
    assert sentence in capsys.readouterr().out


def test_what_was_lost_was_lost_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the kernel ends an engine whose launcher is gone, which its log tells as an ordered end
    service(tmp_path, "a", f"{LOADING}{UP}INFO:     Shutting down\nnoise\n", phase="ready")
    assert reading(capsys, "why", "a")["phase"] == "ready"
    assert run(["why", "a"]) == 0
    out, _ = capsys.readouterr()
    assert "exited without a message" in out and "noise" not in out


def test_a_folder_named_like_a_service(
    current_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service(tmp_path, "a", OOM, phase="failed", outcome="died", status=1)
    (tmp_path / "a").mkdir()
    assert reading(capsys, "why", "a")["causes"][0]["id"] == "device_oom"


def test_an_engine_that_is_still_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    with registry.hold("a"):
        store.write(store.service_dir("a"), "state.json", {"name": "a", "phase": "start"})
        shown = reading(capsys, "why", "a")
        assert not shown["failed"] and "written nothing yet" in shown["note"]
        assert run(["why", "a"]) == 0 and "written nothing yet" in capsys.readouterr().out
        assert run(["logs", "a"]) == 0 and "written nothing yet" in capsys.readouterr().err
        # once it is no longer held, nobody waits for its log
        follower = threading.Thread(target=lambda: run(["logs", "-f", "a"]))
        follower.start()
    follower.join(30)
    assert not follower.is_alive()


def test_one_that_was_started_again_tells_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with registry.hold("a"):
        folder = store.service_dir("a")
        store.write(
            folder,
            "state.json",
            {"name": "a", "phase": "load", "restarts": 2, "error": "The disk was full."},
        )
        (folder / "engine.log").write_text(LOADING)
        shown = reading(capsys, "why", "a")
        assert (shown["failed"], shown["phase"]) == (False, "load")
        assert shown["note"].endswith("(total: 2), the last time because: The disk was full.")


def test_what_made_requests_slow_is_shown_for_a_healthy_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        f"{UP}WARNING 04-28 [r.py:1013] Configuration: ('prompt', 16, 896) was not warmed-up!\n"
    )
    shown = reading(capsys, "why", str(log))
    assert (shown["failed"], shown["causes"]) == (False, [])
    assert [(each["id"], each["evidence"][0]["line"]) for each in shown["findings"]] == [
        ("not_warmed_up", 2)
    ]
    assert run(["why", str(log)]) == 0
    out, _ = capsys.readouterr()
    assert (
        "No failure was found" in out
        and "Finding 1: Requests had shapes that were not warmed up" in out
    )
