"""External benchmarks: guidellm, vLLM, inference-benchmarker.

guidellm and vLLM run in their interpreters; of inference-benchmarker the docker command is printed.
Reports are kept complete, and their figures are shown under our names.

guidellm: its command line and report as of 0.8.1 (measured; 0.7 and older had another, and are not
used). vLLM: ``bench serve`` with the options that its releases from 0.8.5 on share
(vllm/benchmarks/serve.py; measured with 0.32); the completions endpoint, its default.
inference-benchmarker: huggingface/inference-benchmarker@35b0810:src/main.rs, src/lib.rs.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from gaudi_launch import interrupt
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.json_values import mapping

_log = logging.getLogger(__name__)

TOOLS = ("auto", "builtin", "guidellm", "vllm", "inference-benchmarker")
IMAGE = "ghcr.io/huggingface/inference-benchmarker:latest"
_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class ToolLoad:
    """The load of a tool: lengths in tokens, number of requests, rate or concurrency."""

    url: str
    model: str
    tokenizer: str
    input: int
    output: int
    requests: int
    rate: float | None
    concurrency: int | None
    seed: int = 0


def find_guidellm() -> str | None:
    """Return guidellm's program on PATH, if its release is supported."""
    program = shutil.which("guidellm")
    if program is None:
        return None
    shown = _output([program, "run", "--help"])
    if shown is not None and "--profile" in shown and "--constraint" in shown:
        return program
    return None


_HAS_CLIENT = (
    "import importlib.util, pathlib; s = importlib.util.find_spec('vllm'); print(bool(s and "
    "s.origin and (pathlib.Path(s.origin).parent / 'benchmarks/serve.py').exists()))"
)


def has_vllm_client(python: str | None) -> bool:
    """Return True if this interpreter has ``vllm bench serve``.

    vLLM is not imported.
    """
    return python is not None and (_output([python, "-c", _HAS_CLIENT]) or "").strip().endswith(
        "True"
    )


def _output(argv: list[str]) -> str | None:
    try:
        done = interrupt.run(argv, seconds=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.debug("a program gave no answer: %s", error)
        return None
    if done.returncode != 0:
        return None
    return done.stdout


def guidellm_config(load: ToolLoad, key: str | None, report: Path) -> dict[str, Any]:
    """Return guidellm's scenario file.

    It includes the key, which other users could read on a command line.
    """
    profile: dict[str, Any] = {"kind": "concurrent", "streams": load.concurrency or 1}
    if load.rate is not None:
        profile = {"kind": "poisson", "rate": load.rate}
    backend = {
        "kind": "openai_http",
        "target": load.url,
        "model": load.model,
        "follow_redirects": False,
    }
    if key:
        backend["api_key"] = key
    return {
        "spec": {
            "backend": backend,
            "profile": profile,
            "constraints": [{"kind": "max_requests", "count": load.requests}],
            "tokenizer": {"kind": "hf_auto", "model": load.tokenizer},
            "data": [
                {
                    "kind": "synthetic_text",
                    "prompt_tokens": load.input,
                    "output_tokens": load.output,
                }
            ],
            "seed": {"kind": "static", "value": load.seed},
            "outputs": [{"kind": "json", "path": str(report)}],
        }
    }


def vllm_words(python: str, load: ToolLoad, report: Path) -> list[str]:
    """Return vLLM's client as an argument list.

    It reads the key from OPENAI_API_KEY.
    """
    if load.rate is not None:
        pace = ["--request-rate", f"{load.rate:g}"]
    else:
        pace = ["--max-concurrency", str(load.concurrency or 1)]
    return [
        python,
        *("-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--base-url", load.url, "--model", load.model, "--tokenizer", load.tokenizer),
        *("--dataset-name", "random", "--random-input-len", str(load.input)),
        *(
            "--random-output-len",
            str(load.output),
            "--num-prompts",
            str(load.requests),
            "--seed",
            str(load.seed),
        ),
        *pace,
        *(
            "--ignore-eos",
            "--disable-tqdm",
            "--save-result",
            "--percentile-metrics",
            "ttft,tpot,itl,e2el",
        ),
        *("--metric-percentiles", ",".join(map(str, _PERCENTILES))),
        *("--result-dir", str(report.parent), "--result-filename", report.name),
    ]


def benchmarker_words(load: ToolLoad, results: Path, profile: str = "chat") -> list[str]:
    """Return the docker command of inference-benchmarker, to be run by the user.

    It needs a server with OpenAI's chat. Raises LaunchError (USAGE) when the tokenizer is a folder.
    """
    if load.tokenizer.startswith("/"):
        # src/lib.rs: Tokenizer::from_pretrained, which reads the hub
        raise LaunchError("measure.hub_tokenizer", ExitCode.USAGE)
    return [
        *("docker", "run", "--rm", "-it", "--net", "host"),
        # names only: docker takes the values from the environment (src/main.rs reads API_KEY)
        *("-v", f"{results}:/opt/inference-benchmarker/results", "-e", "HF_TOKEN", "-e", "API_KEY"),
        *(IMAGE, "inference-benchmarker", "--tokenizer-name", load.tokenizer),
        *("--model-name", load.model, "--url", load.url, "--profile", profile),
    ]


def run_guidellm(
    program: str, load: ToolLoad, environment: Mapping[str, str], key: str | None
) -> dict[str, Any]:
    """Return guidellm's report. Raises LaunchError (FAILED) when it fails."""

    def words(folder: Path) -> list[str]:
        scenario = folder / "scenario.json"
        # the folder is for its user only
        scenario.write_text(
            json.dumps(guidellm_config(load, key, folder / "report.json")), encoding="utf-8"
        )
        return [program, "run", "--config", str(scenario), "--disable-console-interactive"]

    return _run("guidellm", words, environment)


def run_vllm(python: str, load: ToolLoad, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the report of vLLM's client.

    Raises LaunchError (FAILED) when it fails.
    """
    return _run(
        "vllm", lambda folder: vllm_words(python, load, folder / "report.json"), environment
    )


def _run(
    name: str, words: Callable[[Path], list[str]], environment: Mapping[str, str]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-bench-") as place:
        folder = Path(place)
        argv = words(folder)
        try:
            # its output is progress: our stdout is for the result
            done = interrupt.run(argv, cwd=folder, env=environment, streams=interrupt.MIXED)
            report = None
            if not done.returncode:
                report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LaunchError(
                "measure.tool_failed", ExitCode.FAILED, tool=name, why=str(error)
            ) from None
        if not isinstance(report, dict):
            last = "\n".join(done.stdout.strip().splitlines()[-20:])
            status = f"exit status {done.returncode}"
            raise LaunchError(
                "measure.tool_failed", ExitCode.FAILED, tool=name, why=status, detail=last
            )
        return report


def vllm_summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return our figures from a report of vLLM's client (milliseconds there).

    Missing ones are left out.
    """
    found: dict[str, Any] = {}
    for ours, theirs in (
        ("completed", "completed"),
        ("failed", "failed"),
        ("seconds", "duration"),
        ("input_tokens", "total_input_tokens"),
        ("output_tokens", "total_output_tokens"),
        ("request_rate", "request_throughput"),
        ("output_rate", "output_throughput"),
        ("total_rate", "total_token_throughput"),
    ):
        if _number(report.get(theirs)):
            found[ours] = report[theirs]
    asked = report.get("num_prompts")
    found["requests"] = asked if _number(asked) else found.get("completed", 0)
    found.setdefault("failed", found["requests"] - found.get("completed", 0))
    for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("latency", "e2el")):
        parts = {
            part: report.get(f"{part}_{theirs}_ms")
            for part in ("mean", *(f"p{p}" for p in _PERCENTILES))
        }
        found[ours] = _seconds(parts, 1000)
    return found


def guidellm_summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return our figures from the first benchmark of a guidellm report.

    Its TPOT includes the first token, so its gap between tokens is used as ours.
    """
    benchmarks = report.get("benchmarks")
    if isinstance(benchmarks, list) and benchmarks and isinstance(benchmarks[0], dict):
        first = benchmarks[0]
    else:
        first = {}
    metrics = first.get("metrics")
    metrics = mapping(metrics)

    def part(name: str, kind: str = "successful") -> dict[str, Any]:
        spread = metrics.get(name)
        inner = mapping(spread).get(kind)
        return mapping(inner)

    totals = metrics.get("request_totals")
    totals = mapping(totals)
    found: dict[str, Any] = {
        "requests": totals.get("total", 0),
        "completed": totals.get("successful", 0),
        "failed": totals.get("errored", 0),
        "seconds": first.get("duration"),
        "input_tokens": part("prompt_token_count").get("total_sum"),
        "output_tokens": part("output_token_count").get("total_sum"),
        "request_rate": part("requests_per_second").get("mean"),
        "output_rate": part("output_tokens_per_second").get("mean"),
        "total_rate": part("tokens_per_second").get("mean"),
    }
    for ours, theirs, unit in (
        ("ttft", "time_to_first_token_ms", 1000.0),
        ("tpot", "inter_token_latency_ms", 1000.0),
        ("latency", "request_latency", 1.0),
    ):
        figure = part(theirs)
        cuts = figure.get("percentiles")
        cuts = mapping(cuts)
        parts = {"mean": figure.get("mean"), **{f"p{p}": cuts.get(f"p{p}") for p in _PERCENTILES}}
        found[ours] = _seconds({**parts, "max": figure.get("max")}, unit)
    return {
        name: value for name, value in found.items() if isinstance(value, dict) or _number(value)
    }


def _seconds(parts: Mapping[str, Any], unit: float) -> dict[str, float] | None:
    """Return the numbers among these, as seconds; ``unit`` of them make one."""
    return {name: round(value / unit, 6) for name, value in parts.items() if _number(value)} or None


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
