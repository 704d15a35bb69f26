"""Simulated cards under the real vLLM: a 70B on eight of them answers, counts and stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from gaudi_launch.engines.simulated.engine import RUNTIME
from gaudi_launch.engines.simulated.stand_in import Tokenizer, config_text, stand_in_config
from gaudi_launch.models.model import Model
from tests.support.real_engines import Serve, ask
from tests.support.waiting import until

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


def json_of(state: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words, "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_70b_on_eight_simulated_cards_answers_counts_and_stops(
    engine: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    options = [
        "--engine",
        "simulated",
        "-n",
        "8",
        "--time-scale",
        "500",
        "-p",
        str(port),
        "--name",
        "70b",
    ]
    serve = Serve(tmp_path, MODEL, *options)
    serving.append(serve)
    assert serve.ready()[0].endswith(f"{MODEL} answers at http://127.0.0.1:{port}\n")
    # the same question has the same answer at temperature 0
    first, second = (json.loads(ask(port, model=MODEL, max_tokens=400)) for _ in range(2))
    assert first["choices"][0]["message"]["content"].startswith("This answer is simulated.")
    assert first["choices"][0] == second["choices"][0]
    assert first["choices"][0]["finish_reason"] == "stop"
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA}}
    _filled(json.loads(ask(port, model=MODEL, max_tokens=300, response_format=form)))
    with build_opener(ProxyHandler({})).open(
        f"http://127.0.0.1:{port}/metrics", timeout=30
    ) as page:
        metrics = page.read().decode()
    status = json_of(tmp_path, "status", "70b")
    plan = json.loads((tmp_path / "gaudi-launch/services/70b/plan.json").read_text())
    # one block of vLLM's pool is never used
    assert f'num_gpu_blocks="{plan["num_blocks"] + 1}"' in metrics
    assert 'block_size="128"' in metrics and 'enable_prefix_caching="True"' in metrics
    assert {"warmup_prompt", "warmup_decode", "ready"} <= {
        phase["name"] for phase in status["phases"]
    }
    assert status["warmup"]["graphs"] == plan["buckets"]["graphs"]
    code, err = serve.end()
    assert code == 130
    assert "of the processor per step" in err
    # what it took says nothing about this machine's cards
    assert not (tmp_path / "gaudi-launch" / "warmup-times.json").exists()


def _filled(answer: dict[str, Any]) -> None:
    """Check an answer against the schema."""
    found = json.loads(answer["choices"][0]["message"]["content"])
    assert set(found) == set(SCHEMA["required"])
    assert isinstance(found["name"], str) and isinstance(found["age"], int)
    assert found["kind"] in ("red", "blue") and len(found["parts"]) >= 2


def test_vllm_makes_the_planned_blocks_of_each_kind_of_cache(engine: Path, tmp_path: Path) -> None:
    config = stand_in_config(Model("m", "m", layers=4), Tokenizer("", 1000, own=False), 4096, 1)
    (tmp_path / "config.json").write_text(config_text(config))
    script = Path(__file__).with_name("simulated_caches.py")
    done = subprocess.run(
        [str(engine), str(script), str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": str(RUNTIME),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    full, latent, state = "FullAttentionSpec", "MLAAttentionSpec", "MambaSpec"
    assert found == {
        "dense": [1001, [full]],
        "fp8 cache": [1001, [full]],
        "latent": [1001, [latent]],
        "two widths": [1001, [full]],
        "hybrid": [1001, [full, state]],
        "hybrid without prefix caching": [1001, [full, state]],
    }


def test_the_readmes_rehearsal_measures_and_draws(engine: Path, port: int, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path),
        "http_proxy": "http://127.0.0.1:9",
    }
    lines = (
        (Path(__file__).parents[2] / "docs" / "simulated.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    serve, bench, stop = (
        shlex.split(line)[1:] for line in lines if "rehearsal" in line and line.startswith("gaudi-")
    )
    output = []
    for words in ([*serve, "--port", str(port)], bench, stop):
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        output.append(done.stdout + done.stderr)
    assert "128 of 128 requests" in output[1] and "The cards are simulated" in output[1]
    assert (tmp_path / "latency.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "time scale 4" in output[2]


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
