"""plan and serve on drawn states of a machine: the same verdict, the same list of what is to do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.commands.inspect.fit import engine_for
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.paths import data_dir, machine_root
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.serve import ServeMode, start
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.state.reservation import reserve, reserve_address
from tests.support.every_case import EVERY_CASE, examples
from tests.support.local_hub import Hub
from tests.support.places import DATA
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
    "the fork, not named": (FORK, "auto"),
    "on the processor, missing": ({}, "cpu"),
    "Ray and an engine": (PLUGIN | RAY, "ray-serve:vllm-gaudi"),
    "Ray and transformers": (RAY | {"transformers": "4.55"}, "ray-serve:transformers"),
    "transformers without Ray": ({"transformers": "4.55"}, "ray-serve:transformers"),
    "Ray without an engine": (RAY, "ray-serve:vllm-gaudi"),
    "an engine without Ray": (PLUGIN, "ray-serve:vllm-gaudi"),
}
# folders are made by `place`; me/small is on the hub, me/none is not
FOLDERS = ("complete", "complete", "no-weights", "no-tokenizer", "half", "absent", "Qwen3-8B")
# a mixture, MLA and a hybrid
LIKE = ("Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3.5-35B-A3B")
MODELS = (*FOLDERS, "me/small", "me/none", "me/like-0", "me/like-1", "me/like-2")
PRECISIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"dtype": "fp8"},
    {"dtype": "fp8", "quant_config": "gone.json"},
)
ARGUMENTS = ((), (), ("--config", "gone.yaml"))
KERNELS = ("iommu=pt", "iommu=pt", "iommu=strict")
TUNINGS = ("auto", "auto", "auto", "reference")
# a process listens on the port, or a launcher reserved it
PORTS = ("free", "free", "free", "taken", "reserved")
# modules in use by a process (of the machine), or reserved by a launcher
CARDS = ("free", "free", "half busy", "busy", "half reserved", "reserved")
# what a plan made from the hub and the plan of what was fetched have in common
ALIKE = ("modules", "memory", "num_blocks", "buckets", "dtype")
SEED, COUNT = 32, 60
DETACHED = ServeMode(name="s", quiet=True, detach=True)
# the shell answers the question for the packages, which each plan asks
PYTHON = """#!/bin/sh
case "$1 $2" in "-c "*gaudi-launch-answer:*)
    printf 'gaudi-launch-answer:%s\\n' "$(cat {answer})" ;;
esac
"""


def drawn() -> list[tuple[Any, ...]]:
    """Return states: each value of each table, then drawn ones."""
    source = random.Random(SEED)
    tables: tuple[tuple[Any, ...], ...]
    tables = (tuple(ENGINES), MODELS, PRECISIONS, ARGUMENTS, KERNELS, TUNINGS, PORTS, CARDS)
    first = tuple(table[0] for table in tables)
    found = [first]
    for at, table in enumerate(tables):
        found += [(*first[:at], each, *first[at + 1 :]) for each in table if each != first[at]]
    while len(found) < COUNT:
        found.append(tuple(source.choice(table) for table in tables))
    return found


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return machines by the cards that are busy."""
    found = {}
    for name, busy in (("free", ""), ("half busy", "0,1,2,3"), ("busy", "0,1,2,3,4,5,6,7")):
        found[name] = tmp_path_factory.mktemp("tree")
        write_tree(f"hls2+busy={busy}" if busy else "hls2", found[name])
    return found


@pytest.fixture
def place(
    tmp_path: Path, trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
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
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'hl/bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("QUANT_CONFIG", raising=False)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(PYTHON.format(answer=shlex.quote(str(tmp_path / "answer"))))
    python.chmod(0o755)
    published = json.loads((DATA / "models/published.json").read_text())["configs"]
    kinds = {}
    for number, like in enumerate(LIKE):
        config = json.dumps(published[like]).encode()
        kinds[f"me/like-{number}"] = {**files, "config.json": config}
    with Hub(files, others=kinds) as hub:
        for name, value in hub.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield tmp_path


@contextlib.contextmanager
def occupied(port: int, how: str, cards: str) -> Iterator[None]:
    """Take the port, and reserve it or cards, as another launcher or program would."""
    modules = {"half reserved": (0, 1, 2, 3), "reserved": tuple(range(8))}.get(cards, ())
    with contextlib.ExitStack() as stack:
        stack.enter_context(reserve(modules, machine_root()))
        if how == "taken":
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        elif how == "reserved":
            stack.enter_context(reserve_address("127.0.0.1", port, "other", machine_root()))
        yield


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
    if options.engine == "auto":
        # fit, estimate and recommend size for the engine that is planned
        sized = engine_for("", checked.prepared.model, "gaudi2", force=True)
        assert sized.identity.exact == checked.plan.engine.exact
    verdict = checked.verdict
    if checked.taken or checked.lacks_consent:
        mended = checked_plan(checked.startable(options))
        assert not (mended.taken or mended.lacks_consent)
    own = [each for each in checked.todo if not each.by_serve]
    # that environment is for machines without cards
    assert ("gaudi-launch", "setup", "ray") not in [each.command for each in own]
    try:
        start(options, DETACHED, Silent())
    except LaunchError as error:
        assert (started, verdict == "ready") == ([], False), error
        if verdict == "refused":
            with pytest.raises(LaunchError, match=f"^{re.escape(str(error))}$"):
                checked.refuse()
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
    made, served = checked.plan.to_json(), started[0][1]
    assert {name: served[name] for name in ALIKE} == {name: made[name] for name in ALIKE}
    return "started" if verdict == "ready" else "done and started"


def test_serve_says_what_plan_says(
    place: Path, trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(detach, "spawn", lambda *words: started.append(words))
    good = (trees["free"] / "proc/cmdline").read_text()
    found: dict[str, int] = {}
    served = set()
    states = random.Random(SEED).sample(drawn(), examples(24, COUNT))
    for engine, model, precision, arguments, kernel, tuning, port, cards in states:
        packages, name = ENGINES[engine]
        kind = {"extension_kind": "1.21"} if packages is FORK else {}
        answer = {"packages": {**BELOW, **packages}, "facts": kind}
        (place / "answer").write_text(json.dumps(answer))
        tree = trees[cards if cards in trees else "free"]
        monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tree))
        (place / "hl").unlink(missing_ok=True)
        (place / "hl").symlink_to(tree)
        (tree / "proc/cmdline").write_text(good.replace("iommu=pt", kernel))
        number = unused_port()
        options = LaunchOptions(model=model, cards=1, engine=name, port=number, **precision)
        options = replace(options, extra=arguments, tuning=tuning)
        started.clear()
        shutil.rmtree(data_dir(), ignore_errors=True)
        with occupied(number, port, cards):
            try:
                said = judged(options, started)
            except AssertionError as error:
                state = f"{engine}; {model}; {shlex.join(arguments)}; {port}; {cards}"
                raise AssertionError(f"{state}: {error}") from error
        if started:
            served.add(engine)
        if name != "cpu":
            assert port == "free" or said in ("error", "refused"), (model, port, said)
            assert cards not in ("busy", "reserved") or said == "error", (model, cards, said)
        found[said] = found.get(said, 0) + 1
    if EVERY_CASE:
        assert {"there", "Ray and an engine", "Ray and transformers"} <= served
    # each verdict was met
    assert {"error", "refused", "to do", "started", "done and started"} <= found.keys(), found
