"""Simulated cards under the real vLLM: a 70B on eight of them answers, counts and stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.services.engine_counters import read_counters
from gaudi_launch.extensions.simulated.stand_in import Tokenizer, config_text, stand_in_config
from tests.support import trivial_engine
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.places import TOP
from tests.support.real_engines import Serve, ask, json_of, run_simulated
from tests.support.waiting import until, unused_port

pytestmark = pytest.mark.e2e
MODEL = "meta-llama/Llama-3.1-70B-Instruct"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "kind": {"enum": ["red", "blue"]},
        "parts": {"type": "array", "items": {"type": "number"}, "minItems": 2},
    },
    "required": ["name", "age", "kind", "parts"],
    "additionalProperties": False,
}


class Rehearsal:
    """The documented rehearsal of a 70B on eight simulated cards, on a separate port.

    Its cards are faster than documented, and two faults are added.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        page = (TOP / "docs" / "simulated.md").read_text(encoding="utf-8")
        self.serve, self.bench, self.stop = (
            shlex.split(line)[1:]
            for line in page.splitlines()
            if "rehearsal" in line and line.startswith("gaudi-")
        )

    def begin(self) -> None:
        """Start it as the page says, but 500 times as fast as cards and with two faults."""
        more = ("--time-scale", "500", "--fault", "compile", "--fault", "slow-card=1")
        self.run(*self.serve, "--port", str(self.port), *more)

    def tried(self, *words: str) -> tuple[int, str]:
        """Run a command of its user; return its status, and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "XDG_STATE_HOME": str(self.folder),
                "http_proxy": "http://127.0.0.1:9",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, *words: str) -> str:
        """Run a command that succeeds; return what it printed."""
        status, shown = self.tried(*words)
        assert status == 0, shown
        return shown

    def page(self, path: str) -> HTTPResponse:
        """Open a page of the server."""
        opened = build_opener(ProxyHandler({})).open(
            f"http://127.0.0.1:{self.port}{path}", timeout=30
        )
        assert isinstance(opened, HTTPResponse)
        return opened


@pytest.fixture(scope="module")
def rehearsal(
    real_engine_turn: None, engine: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsal]:
    """Start the rehearsal; the last test stops it."""
    made = Rehearsal(tmp_path_factory.mktemp("rehearsal"), unused_port())
    made.begin()
    yield made
    if (made.folder / "gaudi-launch/services/rehearsal").exists():
        made.run("stop", "--all", "--drain", "0")


def test_a_70b_on_eight_simulated_cards_answers_and_counts(rehearsal: Rehearsal) -> None:
    port = rehearsal.port
    # the same question has the same answer at temperature 0
    first, second = (json.loads(ask(port, model=MODEL, max_tokens=400)) for _ in range(2))
    assert first["choices"][0]["message"]["content"].startswith("This answer is simulated.")
    assert first["choices"][0] == second["choices"][0]
    assert first["choices"][0]["finish_reason"] == "stop"
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA}}
    _filled(json.loads(ask(port, model=MODEL, max_tokens=300, response_format=form)))
    with rehearsal.page("/metrics") as page:
        metrics = page.read().decode()
    status = json_of(rehearsal.folder, "status", "rehearsal")
    plan = json.loads((rehearsal.folder / "gaudi-launch/services/rehearsal/plan.json").read_text())
    # one block of vLLM's pool is never used
    assert f'num_gpu_blocks="{plan["num_blocks"] + 1}"' in metrics
    assert 'block_size="128"' in metrics and 'enable_prefix_caching="True"' in metrics
    assert {"warmup_prompt", "warmup_decode", "ready"} <= {
        phase["name"] for phase in status["phases"]
    }
    assert status["warmup"]["graphs"] == plan["buckets"]["graphs"]
    # what it took says nothing about this machine's cards
    assert not (rehearsal.folder / "gaudi-launch" / "warmup-times.json").exists()


def test_the_page_of_vllm_has_every_counter(rehearsal: Rehearsal) -> None:
    ask(rehearsal.port, model=MODEL, max_tokens=4)
    with rehearsal.page("/metrics") as page:
        metrics = page.read().decode()
    counters = read_counters(metrics)
    assert counters is not None
    assert [name for name, value in counters.values().items() if value is None] == []
    # the trivial engine of the short form of scripts/acceptance/alerts.py has the same names
    for name in (*trivial_engine.COUNTERS, *trivial_engine.GAUGES):
        assert f"\n{name}{{" in metrics


def test_a_rehearsal_is_marked_everywhere(rehearsal: Rehearsal) -> None:
    with rehearsal.page("/v1/models") as answer:
        assert answer.headers["x-simulated"] == "gaudi-launch"
        models = json.loads(answer.read())["data"]
    assert [(model["id"], model["owned_by"]) for model in models] == [(MODEL, "simulated")]
    # vLLM's own client is tried in test_services.py
    more = ("--tool", "builtin", "--save", "run.json")
    benched = rehearsal.run(*rehearsal.bench, *more)
    assert "128 of 128 requests" in benched and "The cards are simulated" in benched
    saved = rehearsal.folder / "run.json"
    assert json.loads(saved.read_text())["simulated"] is True
    assert rehearsal.run("bench", "--learned").startswith("Nothing learned")
    status, refused = rehearsal.tried("bench", "--learn", str(saved))
    assert status != 0 and "its cards are simulated" in refused
    assert rehearsal.run("bench", "--learned").startswith("Nothing learned")
    why = json_of(rehearsal.folder, "why", "rehearsal")
    assert {"not_warmed_up", "simulated_fault"} <= {finding["id"] for finding in why["findings"]}


def test_its_stop_states_the_speed_of_this_machine(rehearsal: Rehearsal) -> None:
    if json_of(rehearsal.folder, "ps")["services"] == []:
        # a second attempt: the first one stopped it
        rehearsal.begin()
        assert json.loads(ask(rehearsal.port, model=MODEL, max_tokens=100))["choices"]
    stopped = rehearsal.run(*rehearsal.stop)
    assert "time scale 500" in stopped, stopped
    shown = json_of(rehearsal.folder, "ps", "-a")
    assert [row["phase"] for row in shown["services"]] == ["stopped"]


def _filled(answer: dict[str, Any]) -> None:
    """Check an answer against the schema."""
    found = json.loads(answer["choices"][0]["message"]["content"])
    assert set(found) == set(SCHEMA["required"])
    assert isinstance(found["name"], str) and isinstance(found["age"], int)
    assert found["kind"] in ("red", "blue") and len(found["parts"]) >= 2


def test_vllm_makes_the_planned_blocks_of_each_kind_of_cache(engine: Path, tmp_path: Path) -> None:
    config = stand_in_config(Model("m", "m", layers=4), Tokenizer("", 1000, own=False), 4096, 1)
    (tmp_path / "config.json").write_text(config_text(config))
    (found,) = run_simulated(engine, Path(__file__).with_name("simulated_caches.py"), tmp_path)
    full, latent, state = "FullAttentionSpec", "MLAAttentionSpec", "MambaSpec"
    assert found == {
        "dense": [1001, [full]],
        "fp8 cache": [1001, [full]],
        "latent": [1001, [latent]],
        "two widths": [1001, [full]],
        "hybrid": [1001, [full, state]],
        "hybrid without prefix caching": [1001, [full, state]],
    }


@ONE_MORE_ENGINE
def test_two_copies_of_the_model_share_the_requests(
    engine: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    words = ["Qwen/Qwen2.5-7B-Instruct", "--engine", "simulated", "-n", "1", "--name", "copies"]
    words += ["--time-scale", "500", "-p", str(port), "--", "--data-parallel-size", "2"]
    serve = Serve(tmp_path, *words)
    serving.append(serve)
    serve.ready()
    threads = [
        Thread(target=ask, args=(port,), kwargs={"model": words[0], "max_tokens": 64})
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with build_opener(ProxyHandler({})).open(
        f"http://127.0.0.1:{port}/metrics", timeout=30
    ) as page:
        generated = counts(page.read().decode(), "vllm:generation_tokens_total")
    # each copy has an engine that counts its own tokens
    assert sorted(generated) == ["0", "1"]
    assert min(generated.values()) > 0 and sum(generated.values()) > 16

    # a copy writes its record at a step, some seconds after the last one
    def recorded() -> bool:
        ask(port, model=words[0], max_tokens=4)
        run = json_of(tmp_path, "status", "copies")["simulated_run"]
        return run is not None and run["steps"] > 0

    until(recorded, "the record of the run", seconds=60)
    assert serve.end()[0] == 130


def counts(page: str, name: str) -> dict[str, float]:
    """Return a counter's values by engine."""
    found = re.findall(rf'^{name}\{{.*engine="(\d+)".*\}} (\S+)$', page, re.MULTILINE)
    return {engine: float(value) for engine, value in found}
