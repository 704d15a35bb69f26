"""The proof of the seam: an engine of one module, registered, goes through every command that
reads an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.engines import entries
from tests.support import toy_engine
from tests.support.machines import link_tree
from tests.support.waiting import unused_port

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
TOY = ("--engine", toy_engine.NAME)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    entries.register(toy_engine.NAME, entries.Entry(toy_engine.create))
    yield
    del entries.ENGINES[toy_engine.NAME]


@pytest.fixture
def machine(tmp_path: Path, plain_english: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with eight cards, and a user without anything of their own."""
    folder = tmp_path / "machine"
    link_tree("hls2", folder)
    for name in [name for name in os.environ if name.startswith(("VLLM_", "HABANA_", "PT_HPU"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "Small"
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2}
    sizes = {
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "hidden_size": 256,
        "vocab_size": 1000,
    }
    more = {"max_position_embeddings": 4096, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps({**config, **sizes, **more}), encoding="utf-8")
    (folder / "pytorch_model.bin").touch()
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str], machine: Path) -> Callable[..., Any]:
    """Run a command that succeeds; the object that it prints."""

    def ask(*words: str) -> dict[str, Any]:
        end = words.index("--") if "--" in words else len(words)
        code = run([*words[:end], "--json", *words[end:]])
        out, err = capfd.readouterr()
        assert code == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    return ask


def test_plan_has_its_settings_its_memory_and_its_buckets(ask: Callable[..., Any]) -> None:
    found = ask(
        "plan",
        "-w",
        MODEL,
        "-n",
        "2",
        "-b",
        "8",
        "--machine",
        "simulated:hls2",
        *TOY,
        "--",
        "--fast",
    )
    assert found["engine"] == {"name": "toy", "version": "1.0", "python": None}
    assert found["modules"] == [0, 1]
    assert found["env"]["HABANA_VISIBLE_MODULES"] == "0,1"
    assert found["argv"][1:] == [
        toy_engine.__file__,
        *(
            "--host",
            "127.0.0.1",
            "--port",
            "30001",
            "--model",
            MODEL,
            "--max-num-seqs",
            "8",
            "--fast",
        ),
    ]
    assert found["buckets"]["strategy"] == "doubling"
    assert found["buckets"]["prompt"] == [[1, 128, 0], [1, 256, 0], [1, 512, 0], [1, 1024, 0]]
    assert found["buckets"]["decode"] == [[1, 1, 8], [2, 1, 16], [4, 1, 32], [8, 1, 64]]


def test_its_memory_rules_divide_the_card(ask: Callable[..., Any]) -> None:
    words = ("plan", "-w", MODEL, "-n", "1", "--machine", "simulated:hls2")
    memory = ask(*words, *TOY)["memory"]
    left = memory["card"] - memory["weights"]
    # half of what is free, and nothing for graphs
    assert memory["graphs"] == 0
    assert memory["kv"] == pytest.approx((left - memory["activations"]) / 2, abs=0.02)
    assert memory != ask(*words, "--engine", "vllm-fork@1.22")["memory"]


def test_warmup_counts_its_own_list(ask: Callable[..., Any]) -> None:
    found = ask("warmup", "-w", MODEL, "-n", "1", "-l", "2048", "--machine", "simulated:hls2", *TOY)
    assert found["engine"] == "toy"


def test_engines_lists_it_with_its_defaults(ask: Callable[..., Any]) -> None:
    row = next(row for row in ask("engines")["engines"] if row["name"] == "toy")
    assert (row["can"], row["lacks"], row["needs_cards"]) == (["chat"], [], True)


@pytest.mark.parametrize(
    ("target", "more"),
    [("script", ()), ("systemd", ()), ("compose", ("--image", "own/toy:1"))],
)
def test_render_writes_its_command(
    target: str,
    more: tuple[str, ...],
    machine: Path,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code = run(
        ["render", target, "-w", MODEL, "-n", "1", "--machine", "simulated:hls2", *TOY, *more]
    )
    out, err = capfd.readouterr()
    assert code == 0, err
    assert "HABANA_VISIBLE_" in out


def test_serve_is_ready_and_is_stopped(
    ask: Callable[..., Any], model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    port = unused_port()
    words = [
        "-w",
        str(model),
        "-n",
        "1",
        "-p",
        str(port),
        "--name",
        "small",
        "--no-doctor",
        "--detach",
        *TOY,
    ]
    code = run(["serve", *words])
    assert code == 0, capfd.readouterr().err
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/v1/models") as response:
            assert json.load(response)["data"][0]["id"] == str(model)
        capfd.readouterr()
        (service,) = ask("ps")["services"]
        assert (service["name"], service["engine"], service["phase"]) == (
            "small",
            "toy@1.0",
            "ready",
        )
    finally:
        stopped = run(["stop", "small"])
    capfd.readouterr()
    assert stopped == 0
    (service,) = ask("ps", "--all")["services"]
    assert (service["alive"], service["phase"], service["error"]) == (False, "stopped", None)


def test_a_start_that_failed_is_explained(
    ask: Callable[..., Any],
    model: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOY_DO", "oom")
    words = [
        "-w",
        str(model),
        "-n",
        "1",
        "-p",
        str(unused_port()),
        "--name",
        "small",
        "--no-doctor",
        *TOY,
    ]
    assert run(["serve", *words]) == 4
    capfd.readouterr()
    found = ask("why", "small")
    assert found["failed"] is True
    assert [cause["id"] for cause in found["causes"]] == ["device_oom"]


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match="toy"):
        entries.register(toy_engine.NAME, entries.Entry(toy_engine.create))
    with pytest.raises(ValueError, match="vllm-gaudi"):
        entries.register("vllm-gaudi", entries.Entry(toy_engine.create))


@pytest.mark.parametrize("keeps", [True, False])
def test_only_an_engine_that_keeps_recipes_gets_a_cache(
    keeps: bool, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy_engine.Toy, "keeps_recipes", keeps)
    found = ask("plan", "-w", MODEL, "-n", "1", *TOY)
    assert ("PT_HPU_RECIPE_CACHE_CONFIG" in found["env"]) == keeps
