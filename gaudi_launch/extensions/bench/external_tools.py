"""External benchmarks: vLLM and inference-benchmarker.

vLLM's client runs in the engine's interpreter; of inference-benchmarker the docker command is
printed. Reports are kept complete, and their figures are shown under our names.

vLLM: ``bench serve`` with the options that its releases from 0.8.5 on share
(vllm/benchmarks/serve.py; measured with 0.32); the completions endpoint, its default.
inference-benchmarker: huggingface/inference-benchmarker@35b0810:src/main.rs, src/lib.rs.
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import is_number
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench.options import BenchOptions

_log = logging.getLogger(__name__)

TOOLS = ("auto", "builtin", "vllm", "inference-benchmarker")
IMAGE = "ghcr.io/huggingface/inference-benchmarker:latest"
_PERCENTILES = (50, 90, 95, 99)
# ours -> vLLM's; the median has its p50 only where requested
_PARTS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}


_HAS_CLIENT = (
    "import importlib.util, pathlib; s = importlib.util.find_spec('vllm'); print(bool(s and "
    "s.origin and (pathlib.Path(s.origin).parent / 'benchmarks/serve.py').exists()))"
)


def has_vllm_client(python: str) -> bool:
    """Return True if this interpreter has ``vllm bench serve``.

    vLLM is not imported.
    """
    try:
        done = interrupt.run([python, "-c", _HAS_CLIENT], seconds=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.debug("an interpreter gave no answer: %s", error)
        return False
    return done.returncode == 0 and done.stdout.strip().endswith("True")


def vllm_words(
    python: str, found: Target, tokenizer: str, load: BenchOptions, report: Path, scale: float = 1
) -> list[str]:
    """Return vLLM's client as an argument list.

    It reads the key from OPENAI_API_KEY. Its requests arrive ``scale`` times as fast.
    """
    if load.rate is not None:
        pace = ["--request-rate", f"{load.rate * scale:g}"]
    else:
        pace = ["--max-concurrency", str(load.concurrency or 1)]
    return [
        python,
        *("-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--base-url", found.url, "--model", str(found.model), "--tokenizer", tokenizer),
        *("--dataset-name", "random", "--random-input-len", str(load.inputs[1])),
        *(
            "--random-output-len",
            str(load.outputs[1]),
            "--num-prompts",
            str(load.requests),
            "--seed",
            str(load.texts),
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


def benchmarker_words(
    found: Target, tokenizer: str, results: Path, profile: str = "chat"
) -> list[str]:
    """Return the docker command of inference-benchmarker, to be run by the user.

    It needs a server with OpenAI's chat. Raises LaunchError (USAGE) when the tokenizer is a folder.
    """
    if tokenizer.startswith("/"):
        # src/lib.rs: Tokenizer::from_pretrained, which reads the hub
        raise LaunchError("measure.hub_tokenizer", ExitCode.USAGE)
    return [
        *("docker", "run", "--rm", "-it", "--net", "host"),
        # names only: docker takes the values from the environment (src/main.rs reads API_KEY)
        *("-v", f"{results}:/opt/inference-benchmarker/results", "-e", "HF_TOKEN", "-e", "API_KEY"),
        *(IMAGE, "inference-benchmarker", "--tokenizer-name", tokenizer),
        *("--model-name", str(found.model), "--url", found.url, "--profile", profile),
    ]


def run_vllm(
    python: str,
    found: Target,
    tokenizer: str,
    load: BenchOptions,
    environment: Mapping[str, str],
    scale: float = 1,
) -> dict[str, Any]:
    """Return the report of vLLM's client.

    Raises LaunchError (FAILED) when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-bench-") as place:
        folder, ending = Path(place), interrupt.Ending(folder=place)
        argv = vllm_words(python, found, tokenizer, load, folder / "report.json", scale)
        try:
            # its output is progress: our stdout is for the result
            done = interrupt.run(
                argv, cwd=folder, env=environment, streams=interrupt.MIXED, ending=ending
            )
            report = None
            if not done.returncode:
                report = read_json(folder / "report.json", as_engine=True)
        except (OSError, ValueError) as error:
            raise LaunchError(
                "measure.tool_failed", ExitCode.FAILED, tool="vllm", why=str(error)
            ) from None
        if not isinstance(report, dict):
            last = "\n".join(done.stdout.strip().splitlines()[-20:])
            status = f"exit status {done.returncode}"
            raise LaunchError(
                "measure.tool_failed", ExitCode.FAILED, tool="vllm", why=status, detail=last
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
        if is_number(report.get(theirs)):
            found[ours] = report[theirs]
    asked = report.get("num_prompts")
    found["requests"] = asked if is_number(asked) else found.get("completed", 0)
    found.setdefault("failed", found["requests"] - found.get("completed", 0))
    for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("latency", "e2el")):
        parts = {part: report.get(f"{name}_{theirs}_ms") for part, name in _PARTS.items()}
        # the numbers among these milliseconds, as seconds
        found[ours] = {
            name: round(value / 1000, 6) for name, value in parts.items() if is_number(value)
        } or None
    return found
