"""The main job on a real engine, and asking and measuring it: one served demo, every way of
asking it, its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_engines import Serve, ask

pytestmark = pytest.mark.e2e


class User:
    """Runs commands next to a service of the same user."""

    def __init__(self, state: Path) -> None:
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(state),
            "http_proxy": "http://127.0.0.1:9",
        }

    def run(self, *words: str, question: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            env=self.environment,
            input=question,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def json(self, *words: str) -> dict[str, Any]:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def test_the_demo_answers_streams_is_measured_and_stops(
    engine: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    serve = Serve(tmp_path, "-w", "demo", "-p", str(port), "--name", "demo")
    serving.append(serve)
    lines = serve.ready()
    assert lines[0].endswith(f"demo answers at http://127.0.0.1:{port}\n")
    _answers(port)
    user = User(tmp_path)
    _check(user)
    said = user.run("chat", "demo", "--temperature", "0", question="What is the capital of France?")
    assert (said.returncode, said.stdout) == (0, "The capital of France is Paris.\n")
    _bench(user, tmp_path)
    scraped = user.json("exporter", "--once")["metrics"]
    phases = [row["labels"] for row in scraped if row["name"] == "gaudi_launch_service_phase"]
    assert phases == [{"service": "demo", "phase": "ready"}]
    # API server, engine core and worker: more than one process, and all of them end
    assert len(serve.family) >= 2
    code, err = serve.end()
    assert code == 130 and err.splitlines()[-1] == "Stopped; no process remains."
    assert serve.alive() == []
    state = json.loads((tmp_path / "gaudi-launch/services/demo/state.json").read_text())
    assert (state["phase"], state["outcome"]) == ("stopped", "stopped")
    gone = user.run("check", "demo")
    assert gone.returncode == 1 and "phase 'stopped'" in gone.stderr


def _answers(port: int) -> None:
    answer = json.loads(ask(port, model="demo"))
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    events = ask(port, model="demo", stream=True).decode().strip().split("\n\n")
    pieces = [
        json.loads(e.removeprefix("data: "))["choices"][0]["delta"].get("content") or ""
        for e in events[:-1]
    ]
    assert "".join(pieces) == "The capital of France is Paris." and events[-1] == "data: [DONE]"


def _check(user: User) -> None:
    found = user.json("check", "demo")
    rows = {row["name"]: row for row in found["checks"]}
    assert [name for name, row in rows.items() if row["verdict"] != "ok"] == ["generate"]
    assert rows["chat"]["values"]["text"] == "The capital of France is Paris."
    longest = rows["models"]["values"]["longest"]
    # just as long as fits beside the answer, by the server's own count
    assert (
        rows["long"]["values"]["input"] == longest - 8 and rows["speed"]["values"]["output"] == 64
    )


def _bench(user: User, folder: Path) -> None:
    trace = folder / "trace.csv"
    trace.write_text(
        "t_seconds,input_tokens,output_tokens\n0,64,8\n0.5,100,12\n0.6,80,4\n3,9000,9\n"
    )
    ours = user.json("bench", "demo", "--trace", str(trace), "--save", str(folder / "ours.json"))
    summary = ours["summary"]
    assert (
        ours["tool"],
        ours["workload"]["left_out"],
        summary["completed"],
        summary["failed"],
    ) == (
        "builtin",
        1,
        3,
        0,
    )
    # the lengths that were asked for, by the server's count
    assert (summary["input_tokens"], summary["output_tokens"]) == (244, 24)
    assert 0 < summary["ttft"]["p50"] < summary["latency"]["p50"]
    words = ("bench", "demo", "--tool", "vllm", "-i", "64", "-o", "8", "--requests", "3")
    theirs = user.json(*words, "--save", str(folder / "theirs.json"))
    assert (theirs["tool"], theirs["summary"]["completed"]) == ("vllm", 3)
    assert theirs["summary"]["output_tokens"] == 24 and theirs["summary"]["ttft"]["p99"] > 0
    compared = user.json("bench", "compare", str(folder / "ours.json"), str(folder / "theirs.json"))
    assert {"ttft", "tpot", "output_rate"} <= {row["name"] for row in compared["rows"]}
