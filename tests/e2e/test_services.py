"""A kept service with the real CPU engine: it answers, is measured, learned from, killed, started
again, lost and stopped.

The tests share one service, in this order.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.real_engines import PARIS, ask, streamed
from tests.support.waiting import until, unused_port

pytestmark = pytest.mark.e2e
# clients, prompt, answer, requests: those to learn from, and another one
LEARNED = ((1, 128, 12, 5), (4, 128, 12, 8))
OTHER = (2, 128, 12, 6)
# scripts/acceptance/learn.py requires 20 % on an idle machine, with more and longer loads; short
# runs beside other tests are less repeatable
LIMIT = 0.5


class User:
    """A user of this machine with a demo service."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.folder, self.sockets, self.port = folder, sockets, unused_port()
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "VLLM_RPC_BASE_PATH": str(sockets),
            "http_proxy": "http://127.0.0.1:9",
        }

    def call(self, *words: str, question: str = "") -> tuple[int, str, str]:
        """Run a command; return its status, output and errors."""
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            env=self.environment,
            input=question,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str) -> dict[str, Any]:
        """Return what a command prints with --json."""
        code, out, err = self.call(*words, "--json")
        assert code == 0, err + out
        found: dict[str, Any] = json.loads(out)
        return found

    def only(self) -> dict[str, Any]:
        """Return the only service."""
        (service,) = self.json("ps")["services"]
        assert isinstance(service, dict)
        return service

    def bench(self, load: tuple[int, int, int, int], file: Path) -> dict[str, Any]:
        """Measure the service under a load."""
        clients, prompt, answer, requests = map(str, load)
        words = ("-i", prompt, "-o", answer, "--concurrency", clients, "--requests", requests)
        return self.json("bench", "demo", *words, "--tool", "builtin", "--save", str(file))


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


@pytest.fixture(scope="module")
def user(
    real_engine_turn: None, engine: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[User]:
    """Start the demo as the README does, on a separate port; the last test stops it."""
    # a path of pytest's own may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="gl-") as sockets:
        made = User(tmp_path_factory.mktemp("kept"), Path(sockets))
        words = ("serve", "demo", "--detach", "-p", str(made.port))
        code, out, err = made.call(*words, "--restart", "on-failure")
        try:
            assert code == 0, err
            assert out.startswith("Ready after ")
            yield made
        finally:
            made.call("stop", "--all", "--drain", "0")


def test_the_demo_answers_and_streams(user: User) -> None:
    answer = json.loads(ask(user.port, model="demo"))
    assert answer["choices"][0]["message"]["content"] == PARIS
    assert streamed(user.port)[0] == PARIS
    question = "What is the capital of France?"
    said = user.call("chat", "demo", "--temperature", "0", question=question)
    assert said[:2] == (0, f"{PARIS}\n")
    for words in (("chat", question), ("run", "demo", question)):
        assert user.call(*words, "--temperature", "0")[:2] == (0, f"{PARIS}\n")


def test_the_demo_is_checked(user: User) -> None:
    found = user.json("check", "demo")
    rows = {row["name"]: row for row in found["checks"]}
    assert [name for name, row in rows.items() if row["verdict"] != "ok"] == ["generate"]
    assert rows["chat"]["values"]["text"] == PARIS
    longest = rows["models"]["values"]["longest"]
    # just as long as fits beside the answer, by the server's own count
    assert (
        rows["long"]["values"]["input"] == longest - 8 and rows["speed"]["values"]["output"] == 64
    )
    scraped = user.json("exporter", "--once")["metrics"]
    phases = [row["labels"] for row in scraped if row["name"] == "gaudi_launch_service_phase"]
    assert phases == [{"service": "demo", "phase": "ready"}]


@ONE_MORE_ENGINE
def test_the_demo_is_measured_by_both_tools(user: User) -> None:
    trace = user.folder / "trace.csv"
    trace.write_text(
        "t_seconds,input_tokens,output_tokens\n0,64,8\n0.5,100,12\n0.6,80,4\n3,9000,9\n"
    )
    ours = user.json(
        "bench", "demo", "--trace", str(trace), "--save", str(user.folder / "ours.json")
    )
    summary = ours["summary"]
    assert (
        ours["tool"],
        ours["workload"]["left_out"],
        summary["completed"],
        summary["failed"],
    ) == ("builtin", 1, 3, 0)
    # the lengths that were asked for, by the server's count
    assert (summary["input_tokens"], summary["output_tokens"]) == (244, 24)
    assert 0 < summary["ttft"]["p50"] < summary["latency"]["p50"]
    words = ("bench", "demo", "--tool", "vllm", "-i", "64", "-o", "8", "--requests", "3")
    theirs = user.json(*words, "--save", str(user.folder / "theirs.json"))
    assert (theirs["tool"], theirs["summary"]["completed"]) == ("vllm", 3)
    assert theirs["summary"]["output_tokens"] == 24 and theirs["summary"]["ttft"]["p99"] > 0
    compared = user.json(
        "bench", "compare", str(user.folder / "ours.json"), str(user.folder / "theirs.json")
    )
    assert {"ttft", "tpot", "output_rate"} <= {row["name"] for row in compared["rows"]}


@ONE_MORE_ENGINE
def test_another_load_is_predicted_after_learning_from_two(user: User) -> None:
    files = [user.folder / f"learned-{number}.json" for number in range(len(LEARNED))]
    for load, file in zip(LEARNED, files, strict=True):
        user.bench(load, file)
    code, _, err = user.call("bench", "--learn", *map(str, files))
    assert code == 0, err
    run = user.bench(OTHER, user.folder / "other.json")
    predicted = run["predicted"]["tpot_seconds"]["expected"]
    error = abs(predicted / run["summary"]["tpot"]["p50"] - 1)
    running = os.getloadavg()[0]
    if error > LIMIT and running > 2 * (os.cpu_count() or 1):
        pytest.skip(f"the machine is busy, runs are not repeatable: {running:.0f}, {error:.0%}")
    assert error <= LIMIT


@ONE_MORE_ENGINE
def test_a_killed_engine_is_started_again_and_a_lost_one_is_stopped(user: User) -> None:
    service = user.only()
    assert service["phase"] == "ready" and service["requests"] == {"running": 0, "waiting": 0}
    first = set(user.sockets.iterdir())
    assert first
    launcher = psutil.Process(service["launcher_pid"])
    assert launcher.memory_info().rss < 50 << 20
    family = launcher.children(recursive=True)
    os.kill(service["pid"], signal.SIGKILL)
    until(lambda: user.only()["restarts"] == 1, "the new start")
    code, _, err = user.call("wait", "demo", "--timeout", "240")
    assert code == 0, err
    assert living(family) == [] and not first & set(user.sockets.iterdir())
    family = launcher.children(recursive=True)
    # a core that hangs outlives the launcher and the server; its title hides its environment
    (core,) = [process for process in family if "VLLM::EngineCore" in " ".join(process.cmdline())]
    core.suspend()
    for pid in (launcher.pid, user.only()["pid"]):
        os.kill(pid, signal.SIGKILL)
    code, out, err = user.call("stop", "demo", "--json")
    assert code == 0, err
    (stopped,) = json.loads(out)["stopped"]
    # when its group is orphaned the kernel wakes what is stopped and hangs it up, so it may be
    # gone by itself
    assert {orphan["pid"] for orphan in stopped["orphans"]} <= {process.pid for process in family}
    assert living([launcher, *family]) == [] and list(user.sockets.iterdir()) == []
