"""plan and serve on drawn states of a machine: the same verdict, the same list of what is to do."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import CheckedPlan, checked_plan
from gaudi_launch.app.report import Silent
from gaudi_launch.app.serve import ServeMode, start
from gaudi_launch.errors import LaunchError
from gaudi_launch.host.simulated import write_tree
from gaudi_launch.paths import data_dir
from gaudi_launch.services.process import detach
from tests.support.local_hub import Hub
from tests.support.serve import write_model
from tests.support.shards import shard
from tests.support.waiting import unused_port

pytestmark = pytest.mark.usefixtures("plain_english")

GAUDI = ("torch-plugin", "torch-dataloader", "pyhlml", "media-loader")
BELOW = {f"habana-{name}": "1.22.1.6" for name in GAUDI} | {"neural-compressor-pt": "3.4"}
PLUGIN = {"vllm": "0.26.0", "vllm-gaudi": "0.26.0"}
FORK = {"vllm": "0.8.5", "vllm-hpu-extension": "1.21.0"}
RAY = {"ray": "2.60.0"}
# what python3 on PATH has, and the engine that is asked for
ENGINES: dict[str, tuple[dict[str, str], str]] = {
    "there": (PLUGIN, "auto"),
    "there, of another release": (PLUGIN, "vllm-gaudi@0.24.0"),
    "missing": ({}, "auto"),
    "missing, named": ({}, "vllm-gaudi"),
    "another one": (FORK, "vllm-gaudi"),
    "the fork": (FORK, "vllm-fork@1.21"),
    "on the processor, missing": ({}, "cpu"),
    "Ray and an engine": (PLUGIN | RAY, "ray-serve:vllm-gaudi"),
    "Ray without an engine": (RAY, "ray-serve:vllm-gaudi"),
    "an engine without Ray": (PLUGIN, "ray-serve:vllm-gaudi"),
}
# folders are made by `place`; me/small is on the hub, me/none is not
MODELS = (
    "complete",
    "complete",
    "no-weights",
    "no-tokenizer",
    "half",
    "absent",
    "Qwen3-8B",
    "me/small",
    "me/none",
)
PRECISIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"dtype": "fp8"},
    {"dtype": "fp8", "quant_config": "gone.json"},
)
ARGUMENTS = ((), (), ("--config", "gone.yaml"))
KERNELS = ("iommu=pt", "iommu=pt", "iommu=strict")
TUNINGS = ("auto", "auto", "auto", "reference")
SEED, COUNT = 32, 50
DETACHED = ServeMode(name="s", quiet=True, detach=True)
PYTHON = """#!{python}
import json, sys
if sys.argv[1:2] == ["-c"] and "gaudi-launch-answer:" in sys.argv[2]:
    print("gaudi-launch-answer:" + open({answer!r}).read())
"""


def drawn() -> list[tuple[Any, ...]]:
    """Return states: each value of each table, then drawn ones."""
    source = random.Random(SEED)
    tables: tuple[tuple[Any, ...], ...]
    tables = (tuple(ENGINES), MODELS, PRECISIONS, ARGUMENTS, KERNELS, TUNINGS)
    first = tuple(table[0] for table in tables)
    found = [first]
    for at, table in enumerate(tables):
        found += [(*first[:at], each, *first[at + 1 :]) for each in table if each != first[at]]
    while len(found) < COUNT:
        found.append(tuple(source.choice(table) for table in tables))
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    write_tree("hls2", folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server with the models of the table, and a hub."""
    for name in ("complete", "no-weights", "no-tokenizer", "half"):
        folder = write_model(tmp_path / name)
        (folder / "pytorch_model.bin").unlink()
        if name != "no-weights":
            shard(folder / "model.safetensors", {"a": ("BF16", [64], 128)})
    (tmp_path / "no-tokenizer/tokenizer.json").unlink()
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "half/model.safetensors.index.json").write_text(json.dumps(index))
    files = {each.name: each.read_bytes() for each in (tmp_path / "complete").iterdir()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tree))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tree / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("QUANT_CONFIG", raising=False)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(PYTHON.format(python=sys.executable, answer=str(tmp_path / "answer")))
    python.chmod(0o755)
    with Hub(files) as hub:
        for name, value in hub.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield tmp_path


def refusal(checked: CheckedPlan) -> LaunchError:
    """Return the error of a plan that is refused."""
    with pytest.raises(LaunchError) as raised:
        checked.refuse()
    return raised.value


def judged(options: LaunchOptions, started: list[Any]) -> str:
    """Return the plan's verdict; fail where serve says another thing."""
    try:
        checked = checked_plan(options)
    except LaunchError as error:
        with pytest.raises(LaunchError) as raised:
            start(options, DETACHED, Silent())
        assert (str(raised.value), raised.value.exit_code) == (str(error), error.exit_code)
        assert started == []
        return "error"
    verdict = checked.verdict
    own = [each for each in checked.todo if not each.by_serve]
    try:
        start(options, DETACHED, Silent())
    except LaunchError as error:
        assert (started, verdict == "ready") == ([], False), error
        if verdict == "refused":
            assert str(error) == str(refusal(checked))
        elif own:
            assert (error.id, error.exit_code) == ("serve.to_do", own[0].exit_code)
            shown = (error.detail or "").splitlines()
            told = [f"  {line}" for each in own for line in (each.what.render(), each.line) if line]
            assert shown[: len(told)] == told
            # nothing was fetched for a launch that cannot be
            assert not (data_dir() / "models").exists()
        else:
            # it could not be fetched, or what was fetched decided
            assert error.id.startswith(("pull.", "serve.", "models.", "hub.")), error
            return "failed"
        return verdict
    assert not own and len(started) == 1
    return "started" if verdict == "ready" else "done and started"


def test_serve_says_what_plan_says(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(detach, "spawn", lambda *words: started.append(words))
    line = tree / "proc/cmdline"
    good = line.read_text()
    found: dict[str, int] = {}
    for engine, model, precision, arguments, kernel, tuning in drawn():
        packages, name = ENGINES[engine]
        kind = {"extension_kind": "1.21"} if packages is FORK else {}
        answer = {"packages": {**BELOW, **packages}, "facts": kind}
        (place / "answer").write_text(json.dumps(answer))
        line.write_text(good.replace("iommu=pt", kernel))
        options = LaunchOptions(
            model=model, cards="1", engine=name, port=str(unused_port()), **precision
        )
        options = replace(options, extra=arguments, tuning=tuning)
        started.clear()
        shutil.rmtree(data_dir(), ignore_errors=True)
        try:
            said = judged(options, started)
        except AssertionError as error:
            raise AssertionError(f"{engine}; {model}; {shlex.join(arguments)}: {error}") from error
        found[said] = found.get(said, 0) + 1
    line.write_text(good)
    # each verdict was met, more than once
    assert {"error", "refused", "to do", "started", "done and started"} <= found.keys(), found
    assert sum(found.values()) >= COUNT
