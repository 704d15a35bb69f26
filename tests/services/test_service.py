"""Parts of a service's life: which process is meant, a log within bounds, a job written down, a
load read."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.cli.main import run
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import catalogue, message, set_language, text
from gaudi_launch.paths import engines_dir
from gaudi_launch.planning.plan import Api, Command
from gaudi_launch.recipe_cache.attach import CacheJob
from gaudi_launch.recipe_cache.key import KeyParts
from gaudi_launch.services import service, stop
from gaudi_launch.services.diagnosis.diagnose import diagnose
from gaudi_launch.services.diagnosis.endings import ended
from gaudi_launch.services.listener import address
from gaudi_launch.services.log import kernel_log, rotate
from gaudi_launch.services.log.follow import Follower
from gaudi_launch.services.metrics import read_load
from gaudi_launch.services.probe import Readiness
from gaudi_launch.services.process import detach, sockets
from gaudi_launch.services.process.process import EngineProcess
from gaudi_launch.services.process.supervise import EngineOutcome
from gaudi_launch.services.process.watchers import Warmed
from gaudi_launch.services.service import warmup_items
from gaudi_launch.services.state import identity, registry, store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.job import ServiceJob
from gaudi_launch.services.state.orphans import MARK, Orphan, end, orphans
from gaudi_launch.services.state.recorder import Recorder
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
    assert Identity.from_json(json.loads(json.dumps(mine.to_json()))) == mine
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


@pytest.mark.parametrize(
    "document", [None, 7, [], {}, {"pid": "1", "ticks": 2, "boot": ""}, {"pid": 1, "ticks": 2}]
)
def test_what_is_no_identity(document: object) -> None:
    assert Identity.from_json(document) is None


def test_a_service_whose_pid_is_anothers_now_is_not_signalled(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(stop, "_LAUNCHER_SECONDS", -10.0)
    stale = identity.of(sleeper.pid)
    assert stale is not None
    launcher = {**stale.to_json(), "ticks": stale.ticks - 1}
    with registry.hold("a"):
        store.write(
            store.service_dir("a"),
            "state.json",
            {"name": "a", "phase": "ready", "launcher": launcher},
        )
        with pytest.raises(LaunchError) as caught:
            stop.stop(registry.find("a"), 0, lambda what, value: None)
    assert caught.value.id == "services.not_ending"
    assert sleeper.poll() is None
    # with its lock gone it does not run, whatever its pid says
    assert registry.find("a").phase == "lost"


def test_a_name_is_held_once() -> None:
    with registry.hold("a"), pytest.raises(LaunchError) as caught, registry.hold("a"):
        pass
    assert caught.value.id == "services.name_taken"
    with registry.hold("a"):
        assert registry.runs(store.service_dir("a"))
    assert not registry.runs(store.service_dir("a"))


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


def test_a_log_that_is_put_aside_exists_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine.log"
    found = []
    replace = Path.replace

    def seen(path: Path, target: Path) -> Path:
        found.append(log.read_text())
        done = replace(path, target)
        found.append(log.read_text())
        return done

    monkeypatch.setattr(Path, "replace", seen)
    for lines in ("first\n", "second\n"):
        log.write_text(lines)
        assert rotate.put_aside(log) == log
    assert found == ["first\n", "", "second\n", ""]
    assert rotate.put_aside(log).read_text() == ""
    assert rotate.earlier(log).read_text() == "second\n"
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


def test_on_a_full_disk_old_lines_are_given_up(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"a" * 200)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
    try:
        assert rotate.rotate(log, 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["engine.log"]


def test_the_kernels_word_on_a_killed_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    log = tmp_path / "engine.log"
    log.write_text("INFO loading\n")
    kernel_log.note(log, 0.0, cards=True)
    assert log.read_text() == "INFO loading\n"
    kill = "Out of memory: Killed process 4242 ({}) total-vm:1kB, anon-rss:1kB"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(
        f"3,1,1000000,-;{kill.format('python3')} long ago\n SUBSYSTEM=memory\nnonsense;\n"
        f"3,x;{kill}\n3,2,9000000,-;{kill.format('postgres')}\n"
        f"3,3,9000001,-;{kill.format('VLLM::EngineCor')}\n"
    )
    kernel_log.note(log, 5.0, cards=True)
    assert log.read_text() == f"INFO loading\nkernel: {kill.format('VLLM::EngineCor')}\n"
    assert [cause.id for cause in diagnose(log.read_text(), exit_status=-9).causes] == [
        "oom_killer"
    ]


@pytest.mark.parametrize(
    ("meminfo", "cards", "noted"),
    [
        (
            "HugePages_Total:       0\nHugePages_Free:        0\n",
            True,
            "kernel: HugePages_Free: 0 of 0\n",
        ),
        (
            "HugePages_Total:   15000\nHugePages_Free:        0\n",
            True,
            "kernel: HugePages_Free: 0 of 15000\n",
        ),
        ("HugePages_Total:   15000\nHugePages_Free:        1\n", True, ""),
        ("HugePages_Total:       0\nHugePages_Free:        0\n", False, ""),
        ("MemTotal: x kB\n", True, ""),
    ],
)
def test_that_no_huge_page_is_free_is_noted_for_engines_on_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meminfo: str, cards: bool, noted: str
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(meminfo)
    log = tmp_path / "engine.log"
    log.write_text("RuntimeError: odd\n")
    kernel_log.note(log, 0.0, cards=cards)
    assert log.read_text() == f"RuntimeError: odd\n{noted}"
    found = diagnose(log.read_text(), exit_status=1, outcome="died")
    expected = ["hugepages"] * bool(noted) + ["exception"]
    assert ([cause.id for cause in found.causes], found.permanent) == (expected, False)


def test_a_job_is_written_down_whole(tmp_path: Path) -> None:
    job = ServiceJob(
        name="a",
        model="m",
        model_path="/m",
        engine="vllm-fork@1.21",
        url="http://127.0.0.1:1",
        command=Command(("py", "-m", "x"), {"A": "1"}, ("B",), (0, 1), 0, "/w", {"/f": "text"}),
        modules=(2, 3),
        graphs=7,
        dtype="fp8",
        limits={"start": 1.5},
        bind=False,
        restart="on-failure",
        environment={"VLLM_X": "1"},
        secrets=("VLLM_API_KEY",),
        container="c",
        cache=CacheJob(
            tmp_path, KeyParts(model="m"), Buckets([[1, 128, 0]], [[1, 1, 128]]), None, "why", True
        ),
    )
    assert ServiceJob.from_json(json.loads(json.dumps(job.to_json())), tmp_path) == job


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=8,
    )
)
def test_what_is_no_job(document: object) -> None:
    with pytest.raises(LaunchError):
        ServiceJob.from_json(document if isinstance(document, dict) else None, Path("job.json"))


@given(st.text(max_size=200) | st.just("vllm:num_requests_running nan"))
def test_any_page_of_metrics(text: str) -> None:
    read_load(text)
    read_load(f"tgi_queue_size {text}")


def test_a_full_disk_leaves_nothing_of_a_service_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    job = ServiceJob(
        "a", "m", "/m", "vllm-cpu@1", "http://127.0.0.1:1", Command((sys.executable,), {})
    )
    with registry.hold("a") as handle, pytest.raises(LaunchError) as caught:
        detach.spawn(job, None, {}, (handle,))
    assert caught.value.id == "services.not_spawned"
    assert list(store.services_dir().iterdir()) == []
    # nor is the state of an earlier life taken for this one's
    before = {"name": "a", "phase": "ready"}
    with registry.hold("a") as handle:
        for name in ("state.json", "job.json"):
            (store.service_dir("a") / name).write_text(json.dumps(before))
        with pytest.raises(LaunchError):
            detach.spawn(job, None, {}, (handle,))
        assert store.read(store.service_dir("a"), "state.json") == before


def test_all_are_ended_although_one_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def end(service: registry.ServiceRecord, *_: object) -> stop.Stopped:
        asked.append(service.name)
        if service.name == "a":
            raise LaunchError("services.not_ours", ExitCode.FAILED, name="a", pid=1)
        return stop.Stopped(service, True, 0, ())

    monkeypatch.setattr(stop, "stop", end)
    for name in ("a", "b"):
        with registry.hold(name):
            store.write(store.service_dir(name), "state.json", {"name": name, "phase": "ready"})
    assert run(["stop", "a", "b"]) == 1
    assert asked == ["a", "b"] and "belongs to another user" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("known", "alive", "error"),
    [
        ({"outcome": "died", "status": 3}, False, "the engine exited (exit status 3)"),
        ({"outcome": "died", "status": -12}, False, "the engine exited (exit status signal 12)"),
        (
            {"outcome": "died", "status": 1, "error_id": "diagnose.disk_full"},
            False,
            "A disk is full.",
        ),
        (
            {"outcome": "died", "error_id": "diagnose.exception", "error": "It is: KeyError"},
            False,
            "It is: KeyError",
        ),
        ({"status": 3, "restarts": 1}, True, "the engine exited (exit status 3)"),
        ({"outcome": "stopped", "status": -15, "restarts": 1}, False, ""),
        ({}, True, ""),
    ],
)
def test_why_the_last_life_ended(known: dict[str, object], alive: bool, error: str) -> None:
    assert registry.ServiceRecord("a", Path("a"), known, alive).error == error


DEAF = """
import os, signal, sys, time
from gaudi_launch.services.state import identity, registry, store
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with registry.hold("a"):
    launcher = identity.of(os.getpid()).to_json()
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
            stop.stop(registry.find("a"), 0.0, lambda what, value: None)
            assert launcher.wait(GENEROUS) == -9
            assert registry.find("a").phase == "stopped"
        finally:
            launcher.kill()


def test_what_could_not_be_ended_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = Orphan(Identity(7, 1, ""), "python", "a")
    monkeypatch.setattr(
        stop, "stop", lambda service, *_: stop.Stopped(service, True, 0, (deaf,), (deaf,))
    )
    with registry.hold("a"):
        store.write(store.service_dir("a"), "state.json", {"name": "a", "phase": "ready"})
    assert run(["stop", "a"]) == 1
    shown = capsys.readouterr().err
    assert "could not be stopped: 7" in shown and "nothing is left" not in shown


def test_the_phases_of_a_start_are_written_as_it_goes(tmp_path: Path) -> None:
    job = ServiceJob("a", "m", "/m", "vllm-cpu@1", "http://127.0.0.1:1", Command(("py",), {}))
    with registry.hold("a"):
        folder = store.service_dir("a")
        recorder = Recorder(Mock(), folder, job, folder / "engine.log")
        follower = Follower()
        now = time.monotonic()
        recorder.progress(follower.feed("INFO Starting to load model m...\n", now))
        assert [(p["name"], p["end"]) for p in registry.find("a").state["phases"]] == [
            ("start", now),
            ("load", None),
        ]
        recorder.ended(EngineOutcome("died", 1, follower.progress), message("diagnose.disk_full"))
    told = registry.find("a")
    assert (told.phase, told.error, told.state["phases"][1]["end"] >= now) == (
        "failed",
        "A disk is full.",
        True,
    )
    set_language("zh")
    assert told.error == catalogue("zh")["diagnose.disk_full"]
    set_language(None)


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        (
            {"graphs": 5, "prompt": [[1, 128, 0]] * 3, "decode": [[1, 1, 128]] * 2},
            {"warmup_prompt": 3, "warmup_decode": 2},
        ),
        ({"graphs": 1, "prompt": [[1, 128, 0]], "decode": "?"}, {"warmup_prompt": 1}),
        (None, {}),
    ],
)
def test_the_items_of_a_warm_up_are_those_of_the_plan(
    tmp_path: Path, buckets: object, expected: dict[str, int]
) -> None:
    store.write(tmp_path, "plan.json", {"buckets": buckets})
    assert warmup_items(tmp_path) == expected


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


def test_the_folder_of_a_service_is_its_users_own() -> None:
    former = os.umask(0)
    try:
        with registry.hold("a"):
            folder = store.service_dir("a")
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / "lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(former)


def lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restart: str, ends: list[EngineOutcome]
) -> tuple[EngineOutcome, list[str], list[float], Mock]:
    """Run an engine whose runs end like this; return the last one, sentences and waits."""
    job = ServiceJob("chat", "m", "/m", "e", "http://a:1", Command(("x",), {}), restart=restart)
    store.make_dir("chat")
    said: list[str] = []
    waits: list[float] = []
    recorder, signals = Mock(), Mock(wait=waits.append)
    signals.__bool__ = lambda self: False
    runner = service._Lives(job, Mock(), recorder, {}, said.append, signals)
    left = list(ends)
    monkeypatch.setattr(service._Lives, "_one_run", lambda self: left.pop(0))
    monkeypatch.setattr(kernel_log, "note", lambda *words, **more: None)
    outcome = runner.run()
    return outcome, said, waits, recorder


DIED = EngineOutcome("died", 3, Follower().progress)


def test_a_service_is_restarted_after_longer_and_longer_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome, said, waits, recorder = lives(monkeypatch, tmp_path, "on-failure", [DIED] * 6)
    assert (outcome, waits) == (DIED, [1.0, 5.0, 15.0, 60.0, 300.0])
    assert [call.args for call in recorder.again.call_args_list] == [
        (number + 1, seconds) for number, seconds in enumerate(waits)
    ]
    cause = ended("died", 3)
    assert said == [
        *(
            text("services.again", cause=cause, seconds=f"{seconds:.0f}", count=count, most=5)
            for count, seconds in enumerate(waits, 1)
        ),
        text("services.gave_up", count=6, cause=cause),
    ]


def test_a_service_without_a_policy_ends_once_and_a_stopped_one_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome, said, waits, recorder = lives(monkeypatch, tmp_path, "no", [DIED])
    assert (outcome, said, waits) == (DIED, [], [])
    recorder.ended.assert_called_once_with(DIED, None, False)
    stopped = EngineOutcome("stopped", 0, Follower().progress)
    outcome, said, waits, recorder = lives(monkeypatch, tmp_path, "on-failure", [DIED, stopped])
    assert (outcome, waits) == (stopped, [1.0])
    assert recorder.ended.call_args.args == (stopped,)
    none = EngineOutcome("not_started", None, Follower().progress)
    assert lives(monkeypatch, tmp_path, "on-failure", [none])[2] == []


def test_a_long_good_run_begins_the_count_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    good = EngineOutcome("died", 3, Follower().progress, was_ready=True)
    stopped = EngineOutcome("stopped", 0, Follower().progress)
    ends = [DIED, good, good, DIED, stopped]
    assert lives(monkeypatch, tmp_path, "on-failure", ends)[2] == [1.0, 1.0, 1.0, 5.0]


@pytest.mark.parametrize("api", ["openai", "generate"])
def test_a_run_gets_the_jobs_settings_and_a_new_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: Api
) -> None:
    folder = store.make_dir("chat")
    (folder / "engine.log").write_text("of the last run\n")
    store.write(folder, "plan.json", {"buckets": {"prompt": [1, 2], "decode": [3], "graphs": 3}})
    command = Command(("vllm", "--served-model-name", "a"), {})
    job = ServiceJob(
        "chat", "m", "/m", "e", "http://0.0.0.0:4000", command, modules=(1,), bind=False,
        limits={"load": 9.0}, environment={"A": "job"}, api=api, health_only=True,
    )  # fmt: skip
    made: list[tuple[Any, ...]] = []
    removed: list[tuple[float, dict[str, str]]] = []
    outcome = EngineOutcome("stopped", 0, Follower().progress)

    def supervisor(*words: Any, **more: Any) -> Mock:
        made.append((*words, more))
        return Mock(run=lambda: outcome)

    monkeypatch.setattr(service, "Supervisor", supervisor)
    monkeypatch.setattr(
        sockets, "remove_dead", lambda since, env: removed.append((since, dict(env)))
    )
    watcher, signals = Mock(), Mock()
    inherited = {"A": "mine", "B": "mine", "VLLM_API_KEY": "k"}
    runner = service._Lives(job, watcher, Mock(), inherited, print, signals)
    assert runner._one_run() is outcome
    ((run, *rest),) = made
    assert rest == [watcher, {"signals": signals}]
    assert (run.command, run.url, run.bind, run.limits) == (command, job.url, False, job.limits)
    assert run.environment == {**inherited, "A": "job", MARK: str(folder)}
    assert (run.api_key, run.tgi) == (("k", False) if api == "openai" else (None, True))
    assert (run.names, run.warmup, run.health_only) == (
        ("a",),
        {"warmup_prompt": 2, "warmup_decode": 1},
        True,
    )
    assert run.log == folder / "engine.log" and run.log.read_text() == ""
    assert (folder / "engine.log.1").read_text() == "of the last run\n"
    assert (run.owner.args, run.stranger.args) == ((*address(job.url), folder),) * 2
    assert run.after(0) is None
    assert [env for _, env in removed] == [dict(run.environment)]
    assert time.time() - removed[0][0] < 600
    boxed = service._Lives(replace(job, container="box"), watcher, Mock(), {}, print, signals)
    monkeypatch.setattr(service, "remover", lambda name, argv: (name, argv))
    boxed._one_run()
    run = made[1][0]
    assert (run.after, run.stranger()) == (("box", command.argv), "")


def test_an_unusable_cache_costs_a_warm_up_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = KeyParts(model="m")
    said: list[str] = []
    cache = CacheJob(Path("/c"), parts, Buckets([], []))
    variables = {"PT_HPU_RECIPE_CACHE_CONFIG": "/c,false,1", "KEPT": "1"}
    job = ServiceJob("chat", "m", "/m", "e", "u", Command(("x",), variables), cache=cache)

    @contextlib.contextmanager
    def locked(cache: CacheJob, say: Any) -> Iterator[Any]:
        raise LaunchError("cache.in_use", ExitCode.FAILED)
        yield

    monkeypatch.setattr(service, "kept", locked)
    with service._cache(job, said.append) as (command, keeper):
        assert (keeper, dict(command.env)["KEPT"]) == (None, "1")
        assert command.env != job.command.env
    assert said == [text("cache.unusable", why=str(LaunchError("cache.in_use", ExitCode.FAILED)))]
    with service._cache(replace(job, cache=None), said.append) as (command, keeper):
        assert (command, keeper) == (job.command, None)


def test_a_service_runs_with_its_environment_its_cache_and_its_signals_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store.make_dir("chat")
    events: list[Any] = []
    parts = KeyParts(model="m")
    cache = CacheJob(Path("/c"), parts, Buckets([], []))
    job = ServiceJob("chat", "m", "/m", "e", "u", Command(("/e/python",), {"A": "1"}), cache=cache)
    keeper = Mock()
    outcome = EngineOutcome("stopped", 0, Follower().progress)

    @contextlib.contextmanager
    def held(*words: Any) -> Iterator[Any]:
        events.append(("begin", *words))
        yield keeper
        events.append(("end", words[0]))

    def run(self: service._Lives) -> EngineOutcome:
        events.append(("run", bool(self.signals._ends)))
        assert isinstance(self.watcher, Warmed)
        assert (self.job, self.environment, self.say) == (job, {"B": "2"}, say)
        assert self.recorder._job == job
        # the watcher of the launcher gets every event, and so does the cache
        self.watcher.ready(Readiness(True, "ready", model="m"))
        return outcome

    def say(line: str) -> None:
        pass

    monkeypatch.setattr(service, "in_use", held)
    monkeypatch.setattr(service, "kept", held)
    monkeypatch.setattr(service._Lives, "run", run)
    watcher = Mock()
    assert service.run(job, watcher, {"B": "2"}, say) is outcome
    assert events == [
        ("begin", "/e/python", engines_dir()),
        ("begin", cache, say),
        ("run", True),
        ("end", cache),
        ("end", "/e/python"),
    ]
    assert keeper.warm.call_count == 1
    watcher.ready.assert_called_once_with(Readiness(True, "ready", model="m"))
    folder = store.service_dir("chat")
    state = store.read(folder, "state.json") or {}
    assert (state["phase"], state["log"]) == ("ready", str(folder / "engine.log"))


READ = (
    "import sys; sys.exit(0 if open(sys.argv[1], encoding='utf-8').read() == '(1, 128, 0)\\n' "
    "else 7)"
)


def command(path: Path) -> Command:
    return Command((sys.executable, "-c", READ, str(path)), {}, files={str(path): "(1, 128, 0)\n"})


def started(path: Path, log: Path) -> int:
    engine = EngineProcess(command(path), log, dict(os.environ), bind=False)
    _, status = os.waitpid(engine.start(), 0)
    return os.waitstatus_to_exitcode(status)


def test_the_file_is_there_when_the_engine_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "buckets.txt"
    assert started(path, tmp_path / "log") == 0
    # an older one is replaced, and nothing else lies beside it
    path.write_text("half of")
    assert started(path, tmp_path / "log") == 0
    assert [each.name for each in path.parent.iterdir()] == ["buckets.txt"]


def test_a_file_that_cannot_be_written_starts_nothing_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "buckets.txt"
    with pytest.raises(OSError) as caught:
        started(path, tmp_path / "log")
    assert str(path) in (caught.value.strerror or "")
    assert not (tmp_path / "log").exists()


def test_a_restart_finds_them_in_the_job(tmp_path: Path) -> None:
    job = ServiceJob(
        "name", "m", "/m", "vllm-gaudi@main", "http://127.0.0.1:1", command(tmp_path / "b.txt")
    )
    document = job.to_json()
    assert ServiceJob.from_json(document, tmp_path).command == job.command
