"""Parts of a service's life: which process is meant, a log within bounds, a job written down, a
load read."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.launch import stop as launch_stop
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services import service, stop
from gaudi_launch.core.services.diagnosis.endings import ended
from gaudi_launch.core.services.engine_counters import read_counters
from gaudi_launch.core.services.log import rotate
from gaudi_launch.core.services.metrics import load_of
from gaudi_launch.core.services.process.marks import MARK
from gaudi_launch.core.services.process.signals import Signals
from gaudi_launch.core.services.state import chosen, identity, registry, store
from gaudi_launch.core.services.state.identity import Identity, identity_in
from gaudi_launch.core.services.state.job import ServiceJob, read_job
from gaudi_launch.core.services.state.orphans import Orphan, end, orphans
from tests.support.waiting import GENEROUS, until

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_process_is_known_by_more_than_its_pid(sleeper: subprocess.Popen[bytes]) -> None:
    mine = identity.of(sleeper.pid)
    assert mine is not None and mine.alive
    assert identity_in(json.loads(json.dumps({"a": codec.write(mine)})), "a") == mine
    for other in (
        Identity(mine.pid, mine.ticks + 1, mine.boot),
        Identity(mine.pid, mine.ticks, "another boot"),
    ):
        assert not other.alive and not other.send(15)
    assert sleeper.poll() is None
    assert mine.send(15)
    sleeper.wait(GENEROUS)
    assert not mine.alive and not mine.send(15)


def test_a_process_lives_as_long_as_any_thread_of_it() -> None:
    """Its first thread ends at once, as when a thread that the driver holds outlives a kill."""
    script = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); "
        "ctypes.CDLL(None).syscall(ctypes.c_long(60), 0)"  # x86-64: exit, of this thread only
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            until(
                lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE,
                "the first thread's end",
            )
            mine = identity.of(process.pid)
            assert mine is not None and mine.alive and mine.send(signal.SIGKILL)
        finally:
            process.kill()
    assert not mine.alive


def test_after_a_reboot_no_old_pid_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    before = identity.of(sleeper.pid)
    assert before is not None and before.alive
    boot.write_text("second\n")
    assert not before.alive and not before.send(9)
    assert sleeper.poll() is None


def test_a_service_whose_pid_is_anothers_now_is_not_signalled(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(stop, "_LAUNCHER_SECONDS", -10.0)
    stale = identity.of(sleeper.pid)
    assert stale is not None
    launcher = replace(stale, ticks=stale.ticks - 1)
    with registry.hold("a"):
        store.write(
            store.service_dir("a"),
            "state.json",
            {"name": "a", "phase": "ready", "launcher": launcher},
        )
        with pytest.raises(LaunchError) as caught:
            stop.stop(chosen.find("a"), 0, lambda what, value: None)
    assert caught.value.id == "services.not_ending"
    assert sleeper.poll() is None
    # with its lock gone it does not run, whatever its pid says
    assert chosen.find("a").phase == "lost"


def test_a_log_is_cut_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        assert not rotate.rotate(log, 100)
        # what a flood writes between two looks is left out but for its end
        writer.write(b"b" * 990)
        assert rotate.rotate(log, 100)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert rotate.earlier(log).read_bytes() == b"b" * 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine.log", "engine.log.1"]


def test_a_log_is_put_aside_where_files_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    log = tmp_path / "engine.log"
    log.write_text("first\n")
    rotate.put_aside(log)
    assert (log.read_text(), rotate.earlier(log).read_text()) == ("", "first\n")


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=8,
    )
)
def test_what_is_no_job(document: object) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(LaunchError):
        Path(folder, "job.json").write_text(json.dumps(document), encoding="utf-8")
        read_job(Path(folder))


@given(st.text(max_size=200) | st.just("vllm:num_requests_running nan"))
def test_any_page_of_metrics(text: str) -> None:
    mapped(load_of, read_counters(text))
    mapped(load_of, read_counters(f"tgi_queue_size {text}"))


DEAF = """
import os, signal, sys, time
from gaudi_launch.core.services.state import chosen, identity, registry, store
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with registry.hold("a"):
    launcher = identity.of(os.getpid())
    store.write(store.service_dir("a"), "state.json", {"name": "a", "phase": "load",
                                                       "launcher": launcher})
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_launcher_that_had_to_be_killed_was_stopped_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stop, "_LAUNCHER_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as launcher:
        try:
            assert launcher.stdout is not None and launcher.stdout.readline() == b"held\n"
            stop.stop(chosen.find("a"), 0.0, lambda what, value: None)
            assert launcher.wait(GENEROUS) == -9
            assert chosen.find("a").phase == "stopped"
        finally:
            launcher.kill()


def test_what_could_not_be_ended_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = Orphan(Identity(7, 1, ""), "python", "a")
    monkeypatch.setattr(
        launch_stop, "stop", lambda service, *_: stop.Stopped(service, True, 0, (deaf,), (deaf,))
    )
    with registry.hold("a"):
        store.write(store.service_dir("a"), "state.json", {"name": "a", "phase": "ready"})
    assert run(["stop", "a"]) == 1
    shown = capsys.readouterr().err
    assert "could not be stopped: 7" in shown and "nothing is left" not in shown


def test_an_orphan_without_its_environment_is_known_by_its_log(tmp_path: Path) -> None:
    napping = [sys.executable, "-c", "import time; time.sleep(600)"]
    clean = {name: value for name, value in os.environ.items() if name != MARK}
    (tmp_path / "engine.log").touch()
    with registry.hold("a"):
        folder = store.service_dir("a")
        store.write(folder, "state.json", {"name": "a", "phase": "ready"})
    with contextlib.ExitStack() as napped:
        pids = []
        for log in (folder / "engine.log", tmp_path / "engine.log"):
            with log.open("ab") as output:
                child = subprocess.Popen(
                    napping, stdout=output, stderr=subprocess.DEVNULL, env=clean
                )
            napped.callback(child.wait, 10)
            napped.callback(child.kill)
            pids.append(child.pid)
        # the second writes to a log that is none of ours
        assert [orphan.process.pid for orphan in orphans(folder)] == pids[:1]
        assert {orphan.process.pid for orphan in orphans()} & set(pids) == set(pids[:1])
        # a log that was put aside is written to all the same
        (folder / "engine.log").replace(folder / "engine.log.1")
        assert [orphan.service for orphan in orphans(folder)] == [str(folder)]
        with registry.hold("a"):
            assert orphans(folder) == []
        assert end(orphans(folder)) == []
        assert orphans(folder) == []


class Waits(Signals):
    """Signals that never come; the pauses between runs take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        if seconds >= 1:
            self.waits.append(seconds)
        else:
            super().wait(seconds)


@pytest.mark.parametrize(("listens", "restarts"), [(True, 0), (False, 5)])
def test_an_engine_is_not_restarted_while_another_process_has_its_port(
    listens: bool, restarts: int
) -> None:
    fails = "raise SystemExit('OSError: [Errno 98] Address already in use')"
    dies = Command((sys.executable, "-c", fails), {})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        if listens:
            other.listen()
        else:
            other.close()
        url = f"http://127.0.0.1:{port}"
        job = ServiceJob("chat", "m", "/m", "e", url, dies, restart="on-failure")
        signals, recorder = Waits(), Mock()
        store.make_dir("chat")
        service._Lives(job, recorder, dict(os.environ), lambda line: None, signals).run()
    assert len(signals.waits) == restarts
    assert recorder.ended.call_args.args[2] is listens


def test_a_service_is_restarted_after_longer_and_longer_waits() -> None:
    dies = Command((sys.executable, "-c", "raise SystemExit(3)"), {})
    job = ServiceJob("chat", "m", "/m", "e", "http://127.0.0.1:9", dies, restart="on-failure")
    folder = store.make_dir("chat")
    (folder / "engine.log").write_text("of the last run\n")
    said: list[str] = []
    signals, recorder = Waits(), Mock()
    waits = signals.waits
    outcome = service._Lives(job, recorder, dict(os.environ), said.append, signals).run()
    assert (outcome.kind, outcome.status) == ("died", 3)
    assert waits == [1.0, 5.0, 15.0, 60.0, 300.0]
    assert [call.args for call in recorder.again.call_args_list] == list(enumerate(waits, 1))
    cause = ended("died", 3)
    assert said == [
        *(
            text("services.again", cause=cause, seconds=f"{seconds:.0f}", count=count, most=5)
            for count, seconds in enumerate(waits, 1)
        ),
        text("services.gave_up", count=6, cause=cause),
    ]
    assert (folder / "engine.log.1").read_text() == "of the last run\n"
