"""What runs inside Ray, as far as it needs no Ray: sets of cards with real locks and processes,
environments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.extensions.ray.engine import IN_RAY


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(IN_RAY))
    yield


def slot(tmp_path: Path, *modules: int) -> Any:
    from gaudi_ray_slots import claim

    return claim(tmp_path, [{"modules": list(modules), "cpus": "", "memory_node": None}])


def test_each_replica_gets_a_set_of_its_own_until_none_is_left(tmp_path: Path) -> None:
    from gaudi_ray_slots import claim

    sets: list[dict[str, Any]] = [
        {"modules": [0, 1]},
        {"modules": [2, 3], "cpus": "5-6,9", "memory_node": 1},
    ]
    one, two = claim(tmp_path, sets), claim(tmp_path, sets)
    assert [(s.number, s.modules, s.cpus, s.memory_node) for s in (one, two)] == [
        (0, (0, 1), (), None),
        (1, (2, 3), (5, 6, 9), 1),
    ]
    with pytest.raises(RuntimeError, match="none of the 2"):
        claim(tmp_path, sets, timeout=0.1)
    os.close(one.handle)
    assert claim(tmp_path, sets, timeout=5).number == 0


def test_a_killed_replica_gives_its_set_back_and_its_engine_is_ended(tmp_path: Path) -> None:
    """A holder that dies by SIGKILL, with an engine in a session of its own that would go on."""
    from gaudi_ray_slots import claim, members

    script = f"""
        import os, subprocess, sys, time
        sys.path.insert(0, {str(IN_RAY)!r})
        from gaudi_ray_slots import claim
        from pathlib import Path
        slot = claim(Path({str(tmp_path)!r}), [{{"modules": [0]}}])
        engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                  start_new_session=True)
        slot.sign(engine.pid)
        print(engine.pid, flush=True)
        time.sleep(600)
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        engine = int(holder.stdout.readline())
        with pytest.raises(RuntimeError):
            claim(tmp_path, [{"modules": [0]}], timeout=0.1)
        assert members(engine) == [engine]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert claim(tmp_path, [{"modules": [0]}], timeout=5).modules == (0,)
        assert members(engine) == []
    finally:
        holder.kill()
        holder.communicate()


def test_a_number_that_somebody_else_has_by_now_is_left_alone(tmp_path: Path) -> None:
    from gaudi_ray_slots import end_leftovers

    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    try:
        taken = slot(tmp_path, 0)
        os.pwrite(taken.handle, f'{{"session": {other.pid}, "started": "1"}}'.encode(), 0)
        end_leftovers(taken.handle)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"session": "x", "started": null}'])
def test_a_spoiled_note_stops_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "slot-0.lock").write_bytes(content)
    assert slot(tmp_path, 3).modules == (3,)


def test_a_folder_that_somebody_put_there_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(RuntimeError, match="not ours"):
        slot(tmp_path / "link", 0)
    assert list((tmp_path / "theirs").iterdir()) == []


def test_without_cards_the_cpus_are_shared() -> None:
    from gaudi_ray_slots import share

    mine = tuple(sorted(os.sched_getaffinity(0)))
    for count in range(1, len(mine) + 1):
        parts = [share(number, count) for number in range(count)]
        assert sum(parts, ()) == mine
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert share(0, len(mine) + 1) == ()


NODE = {
    "PATH": "/bin",
    "RAY_AUTH_TOKEN_PATH": "/t",
    "PYTHONPATH": "/in_ray",
    "GAUDI_LAUNCH_RAY_DIR": "/r",
}


@pytest.mark.parametrize(
    ("modules", "node", "expected"),
    [
        # told to leave it alone: the planned set
        (
            (2, 3),
            {
                "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES": "1",
                "HABANA_VISIBLE_MODULES": "0,1,2,3",
            },
            "2,3",
        ),
        # not told: Ray's own ids, in order (5,4 was seen)
        ((0, 1), {"HABANA_VISIBLE_MODULES": "5,4"}, "4,5"),
        ((0, 1), {"HABANA_VISIBLE_MODULES": "10,9"}, "9,10"),
        ((0, 1), {}, "0,1"),
        ((), {"HABANA_VISIBLE_MODULES": "5,4"}, None),
    ],
)
def test_the_engine_sees_its_cards_and_nothing_of_ray(
    tmp_path: Path, modules: tuple[int, ...], node: dict[str, str], expected: str | None
) -> None:
    from gaudi_ray_engine import environment_of

    own = environment_of(slot(tmp_path, *modules), {**NODE, "OMP_NUM_THREADS": "1", **node})
    assert own == {"PATH": "/bin", **({"HABANA_VISIBLE_MODULES": expected} if expected else {})}


def test_the_users_own_values_reach_the_engine(tmp_path: Path) -> None:
    from gaudi_ray_engine import environment_of

    node = {
        **NODE,
        "GAUDI_LAUNCH_OMP_NUM_THREADS": "8",
        "OMP_NUM_THREADS": "1",
        "GAUDI_LAUNCH_PYTHONPATH": "/mine",
    }
    assert environment_of(slot(tmp_path), node) == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "8",
        "PYTHONPATH": "/mine",
    }


def test_an_engine_that_ends_before_it_answers_is_a_failure_written_down(tmp_path: Path) -> None:
    from gaudi_ray_engine import EngineChild

    taken = slot(tmp_path)
    child = EngineChild(
        [sys.executable, "-c", "print('no such model'); raise SystemExit(7)"], taken
    )
    with pytest.raises(RuntimeError, match="ended with 7"):
        child.wait_ready()
    assert (tmp_path / "slot-0.failed").read_text() == "7"
    assert taken.log.read_text() == "no such model\n"


def test_in_a_pod_the_engine_speaks_where_ray_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """So that the logs of the pod are the engine's."""
    from gaudi_ray_engine import EngineChild

    monkeypatch.setenv("RAY_LOG_TO_STDERR", "1")
    taken = slot(tmp_path)
    child = EngineChild(
        [sys.executable, "-c", "print('no such model'); raise SystemExit(7)"], taken
    )
    with pytest.raises(RuntimeError, match="ended with 7"):
        child.wait_ready()
    taken.say("its replica is replaced")
    assert capfd.readouterr().out == "no such model\ngaudi-launch ray: its replica is replaced\n"
    assert not taken.log.exists()


def test_an_engine_is_ended_with_what_it_started(tmp_path: Path) -> None:
    from gaudi_ray_engine import EngineChild
    from gaudi_ray_slots import members

    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); print('up', "
        "flush=True); "
    )
    script = stubborn + (
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
    )
    taken = slot(tmp_path)
    child = EngineChild([sys.executable, "-c", script], taken)
    deadline = time.monotonic() + 20
    while len(members(child.process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    lost: list[int] = []
    child.watch(lost.append)
    child.end(timeout=0.3)
    assert members(child.process.pid) == [] and lost == []


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("abc", (), ("abc", "", False)),
        ("abSTOPc", ("STOP",), ("ab", "", True)),
        ("abST", ("STOP",), ("ab", "ST", False)),
        ("aS", ("STOP", "aST"), ("", "aS", False)),
        ("STO", ("STOP",), ("", "STO", False)),
        ("xyxz", ("z", "y"), ("x", "", True)),
        ("", ("a",), ("", "", False)),
    ],
)
def test_a_stop_word_is_never_sent_in_parts(
    text: str, stops: tuple[str, ...], expected: Any
) -> None:
    from gaudi_ray_generate import cut

    assert cut(text, stops) == expected


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ""},
        {"prompt": 3},
        {"prompt": ["a", "b"]},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": True},
        {"prompt": "a", "temperature": "hot"},
        {"prompt": "a", "temperature": float("nan")},
        {"prompt": "a", "top_p": 2},
        {"prompt": "a", "n": 2},
        {"prompt": "a", "stop": [1]},
        {"prompt": "a", "stop": [""]},
    ],
)
def test_nonsense_is_refused_in_words(body: dict[str, Any]) -> None:
    from gaudi_ray_generate import BadRequest
    from gaudi_ray_openai import job_of

    with pytest.raises(BadRequest):
        job_of(body, False, None)


def test_a_request_becomes_a_job() -> None:
    from gaudi_ray_openai import job_of

    job = job_of(
        {"prompt": ["Hi"], "max_tokens": 3, "temperature": 0, "stop": "x", "seed": 4}, False, None
    )
    greedy = {
        "max_new_tokens": 3,
        "do_sample": False,
        "temperature": None,
        "top_p": None,
        "top_k": None,
        "seed": 4,
    }
    assert (job.prompt, job.options, job.stops, job.special) == ("Hi", greedy, ("x",), True)
    warm = job_of({"prompt": "Hi"}, False, None)
    assert warm.options == {
        "max_new_tokens": 128,
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "seed": None,
    }


def test_folders_of_killed_heads_are_taken_away(tmp_path: Path) -> None:
    import fcntl

    import gaudi_ray_head

    for name in ("gaudi-ray-dead", "gaudi-ray-alive", "gaudi-ray-no-lock", "other"):
        (tmp_path / name / "ray").mkdir(parents=True)
        if name != "gaudi-ray-no-lock":
            (tmp_path / name / "lock").touch()
    with (tmp_path / "gaudi-ray-alive/lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        gaudi_ray_head.sweep(str(tmp_path))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "gaudi-ray-alive",
        "gaudi-ray-no-lock",
        "other",
    ]


def test_a_status_in_lines() -> None:
    import gaudi_ray_head

    deployment = {
        "status": "UPDATING",
        "target_num_replicas": 2,
        "replicas": [{"state": "RUNNING"}],
    }
    found = gaudi_ray_head.summary(
        {"default": {"status": "DEPLOYING", "deployments": {"Engine": deployment}}}
    )
    assert found == [
        "application default DEPLOYING",
        "deployment Engine UPDATING, replicas 1/2 running",
    ]


def test_a_job_is_read_in_the_loop_while_a_thread_generates() -> None:
    import asyncio
    import queue
    import threading

    from gaudi_ray_generate import Generation, GenerationJob

    class Echo(Generation):  # type: ignore[misc, unused-ignore]
        """Generates two pieces for each request."""

        def __init__(self) -> None:
            self._jobs = queue.Queue()
            threading.Thread(target=self._work, daemon=True).start()

        def _generate(self, job: GenerationJob) -> None:
            if job.prompt == "1":
                raise ValueError("one that fails")
            for piece in "ab":
                job.put(job.prompt + piece)

        def _log(self, line: str) -> None:
            pass

    jobs = [GenerationJob(str(n), {}, (), True) for n in range(12)]

    async def read(job: GenerationJob) -> str:
        try:
            return "".join([piece async for piece in job.text()])
        except ValueError as error:
            return str(error)

    async def all_of_them() -> list[str]:
        made = Echo()
        for job in jobs:
            made.add(job)
        # the last first: none may hold up another
        return list(reversed([await read(job) for job in reversed(jobs)]))

    answers = asyncio.run(asyncio.wait_for(all_of_them(), 20))
    assert answers == [f"{n}a{n}b" if n != 1 else "one that fails" for n in range(12)]
    assert all(job.gone.is_set() for job in jobs)


@pytest.mark.parametrize("stops", [[], [15]])
def test_a_ray_that_does_not_answer_is_a_failed_start_or_none_where_it_was_stopped(
    tmp_path: Path,
    stops: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    import socket

    from gaudi_ray_head import Dashboard, Life

    class Impatient(Dashboard):  # type: ignore[misc, unused-ignore]
        """Waits only a moment for Ray."""

        def deploy(self, config: dict[str, Any], stops: list[int], timeout: float = 0.1) -> None:
            super().deploy(config, stops, timeout)

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        config: dict[str, Any] = {"applications": [{"args": {"sets": [{}]}}]}
        life = Life(config, Impatient(url, "sesame"), tmp_path)
        assert life.run(stops) == (0 if stops else 1)
    said = capsys.readouterr().out
    assert said.startswith("gaudi-launch ray: FAILED: ") == (not stops) and "sesame" not in said


@pytest.fixture
def long_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the temporary folder, which is too long for Ray's sockets."""
    import tempfile

    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    return long


def test_a_long_temporary_folder_is_replaced_by_a_short_one(
    long_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gaudi_ray_head import short_folder

    assert short_folder() == "/tmp"
    assert str(long_folder) in capsys.readouterr().out


def test_the_length_is_that_of_a_real_socket(tmp_path: Path) -> None:
    """The length counts, to the byte: one byte more cannot be bound."""
    import socket

    import gaudi_ray_head as head

    fixed = head.socket_length("")
    assert head._LONGEST_SOCKET == 107
    for length, fits in ((107, True), (108, False)):
        path = ("/" + "y" * 200)[:length]
        assert len(path) == length
        with socket.socket(socket.AF_UNIX) as made:
            try:
                # the folder is not there: a path that fits fails for that reason
                made.bind(path.replace("y", "z/", 1)[:length])
            except FileNotFoundError:
                bound = True
            except OSError as error:
                bound = "too long" not in str(error)
        assert bound is fits
    # the folder of the report: 20 characters, one too many for Ray's longest socket
    assert fixed + 20 > 107


def test_nowhere_is_short_enough(
    long_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gaudi_ray_head as head

    monkeypatch.setattr(head, "_SHORT_FOLDERS", ())
    words = ["--host", "127.0.0.1", "--port", "1", "--hpus", "1", "--config", "{}"]
    assert head.main(words) == 1
    assert "AF_UNIX path" in capsys.readouterr().out
    assert list(long_folder.iterdir()) == []


def test_the_logs_of_a_failed_ray_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gaudi_ray_head as head

    monkeypatch.setattr(head, "short_folder", lambda: str(tmp_path))

    def fails(config: object, hpus: int, folder: Path) -> int:
        logs = folder / "ray" / "session_latest" / "logs"
        logs.mkdir(parents=True)
        (logs / "dashboard_MetricsHead.log").write_text("AF_UNIX path length")
        (folder / "token").write_text("sesame")
        os.mkfifo(logs / "pipe")
        if hpus == 2:
            raise RuntimeError("as ray.init does")
        return 1 if hpus else 0

    monkeypatch.setattr(head, "run", fails)

    def start(hpus: int) -> int:
        return int(head.main(["--host", "h", "--port", "1", "--hpus", str(hpus), "--config", "{}"]))

    assert start(0) == 0
    assert list(tmp_path.iterdir()) == []
    assert start(1) == 1
    (kept,) = tmp_path.iterdir()
    assert [path.name for path in sorted(kept.rglob("*"))] == ["logs", "dashboard_MetricsHead.log"]
    assert str(kept / "logs") in capsys.readouterr().out
    with pytest.raises(RuntimeError):
        start(2)
    for _ in range(4):
        start(1)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_router_serves_the_paths_of_the_gateway() -> None:
    """It runs alone inside Ray, so it has a copy of the list."""
    from gaudi_ray_router import PATHS

    from gaudi_launch.extensions.stack.gateway import haproxy_config

    assert haproxy_config.PATHS == PATHS
