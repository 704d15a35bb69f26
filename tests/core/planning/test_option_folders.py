"""Folders and tokenizers that do not fit a model are told before anything starts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.todo import CheckedPlan
from gaudi_launch.core.planning.launch_options import LaunchOptions
from tests.support.every_case import examples
from tests.support.refusals import raising
from tests.support.shards import shard
from tests.support.waiting import unused_port

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 4096,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
TOKEN, NEWEST = "<|python_tag|>", "vllm-gaudi@0.26.0"
LLAMA, QWEN = "Llama-3.1-8B-Instruct", "Qwen3-8B"
SIZES: dict[str, dict[str, Any]] = {
    LLAMA: {"num_hidden_layers": 32, "vocab_size": 128256},
    QWEN: {"num_hidden_layers": 36, "vocab_size": 151936, "model_type": "qwen3"},
}
NEEDED = {
    "--tokenizer": "tokenizer.json",
    "--speculative-config": "config.json",
    "--speculative-model": "config.json",
    "--lora-modules": "adapter_config.json",
    "--lora-adapters": "adapter_config.json",
}
OF_VLLM = ("--tokenizer", "--speculative-config", "--lora-modules")
VLLM = ("vllm-gaudi@0.26.0", "vllm-gaudi@0.11.2", "vllm-fork@1.21", "vllm-fork@1.22", "cpu")
TAKEN = {
    **dict.fromkeys(VLLM, OF_VLLM),
    "deepseek_r1": ("--tokenizer", "--speculative-model", "--lora-modules"),
    "tgi@3.2.3": ("--lora-adapters",),
    "tgi@3.3.5": ("--lora-adapters",),
}


def make(
    folder: Path, *, rows: int = 100, tokens: tuple[str, ...] = (TOKEN,), **changed: Any
) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}), encoding="utf-8")
    vocab = {"added_tokens": [{"content": each} for each in tokens], "model": {"vocab": {}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocab), encoding="utf-8")
    header = {"model.embed_tokens.weight": ("BF16", [rows, 1], rows * 2)}
    shard(folder / "model.safetensors", header)
    return folder


def judged(
    folder: Path, *extra: str, engine: str = "vllm-gaudi@0.26.0", force: bool = False
) -> CheckedPlan:
    """Return the checked plan, after that serve gave the same verdict."""
    options = LaunchOptions(
        model=str(folder),
        cards=None if engine in ("deepseek_r1", "cpu") else 1,
        engine=engine,
        machine=None if engine == "cpu" else "simulated:hls2",
        port=unused_port(),
        force=force,
        extra=extra,
    )
    found = checked_plan(options)
    if found.incomplete is None:
        assert found.verdict != "refused"
        return found
    with pytest.raises(LaunchError) as refused:
        found.refuse()
    assert refused.value is found.incomplete and refused.value.exit_code == ExitCode.MODEL
    assert (found.verdict, found.incomplete.text in found.plan.warnings) == ("refused", True)
    return found


def words(option: str, path: Path, form: int) -> tuple[str, ...]:
    if option == "--speculative-config":
        config = {"method": "eagle3", "model": str(path), "num_speculative_tokens": 2}
        return (option, json.dumps(config))
    if option == "--speculative-model":
        return (option, str(path), "--num-speculative-tokens", "2")
    if option == "--lora-adapters":
        return (option, f"owner/other,a={path}" if form else f"a={path}@main")
    if option == "--lora-modules":
        adapter = f"a={path}" if form else json.dumps({"name": "a", "path": str(path)})
        return ("--enable-lora", option, adapter)
    return (option, str(path)) if form else (f"{option}={path}",)


def test_drawn_folders_of_options_are_compared_with_the_disk(tmp_path: Path) -> None:
    chance = random.Random(33)
    model = make(tmp_path / "model")
    for number in range(examples(25, 80)):
        engine = chance.choice([*TAKEN])
        option = chance.choice(TAKEN[engine])
        folder = tmp_path / f"d{number}"
        state = chance.choice(["absent", "a file", "empty", "other files", "complete"])
        if state == "a file":
            folder.write_text("x", encoding="utf-8")
        elif state != "absent":
            folder.mkdir()
        if state == "other files":
            (folder / "README.md").write_text("x", encoding="utf-8")
        if state == "complete":
            (folder / NEEDED[option]).write_text(json.dumps(CONFIG), encoding="utf-8")
        given = words(option, folder, chance.randrange(2))
        if option == "--speculative-config" and state in ("empty", "other files"):
            # its sizes are part of the plan, which there is not without them
            with raising("models.no_config"):
                judged(model, *given, engine=engine)
            continue
        plan = judged(model, *given, engine=engine)
        found = plan.incomplete
        if state == "complete":
            assert found is None, (engine, option, state)
            box = plan.plan.container
            assert box is None or str(folder) in [each.source for each in box.mounts], option
            continue
        assert found is not None and found.id == "serve.option_folder", (engine, option, state)
        named = {"option": option, "path": str(folder), "needed": NEEDED[option]}
        assert found.text.values == named
        assert judged(model, *given, engine=engine, force=True).incomplete is None


def test_a_hub_id_in_an_option_is_not_a_folder(tmp_path: Path) -> None:
    model = make(tmp_path / "model")
    assert judged(model, "--tokenizer", "meta-llama/Llama-3.1-8B").incomplete is None
    assert judged(model, "--lora-modules", "a=owner/adapter", "--enable-lora").incomplete is None


@pytest.mark.parametrize("rows", [1, 99, 100, 101, 128])
def test_the_rows_of_the_embedding_are_those_of_config_json(tmp_path: Path, rows: int) -> None:
    found = judged(make(tmp_path / "model", rows=rows)).incomplete
    if rows == 100:
        assert found is None
        return
    assert found is not None and found.id == "serve.vocab_differs"
    assert (found.text.values["found"], found.text.values["rows"]) == (100, rows)


@pytest.mark.parametrize(
    ("engine", "name", "tokens", "lacks"),
    [
        ("vllm-gaudi@0.26.0", LLAMA, (TOKEN,), ""),
        ("vllm-gaudi@0.26.0", LLAMA, ("<other>",), TOKEN),
        ("vllm-gaudi@0.21.0", LLAMA, (), TOKEN),
        # their parsers look for no token
        ("vllm-gaudi@0.19.0", LLAMA, (), ""),
        ("vllm-fork@1.22", LLAMA, (), ""),
        ("vllm-gaudi@0.26.0", QWEN, (), ""),
        ("vllm-fork@1.21", QWEN, (), "</tool_call>, <tool_call>"),
        ("vllm-fork@1.22", QWEN, ("<tool_call>",), "</tool_call>"),
        ("vllm-fork@1.22", QWEN, ("<tool_call>", "</tool_call>"), ""),
    ],
)
def test_a_parser_of_a_profile_is_compared_with_the_tokenizer(
    tmp_path: Path, engine: str, name: str, tokens: tuple[str, ...], lacks: str
) -> None:
    # the numbers by which the profile knows it
    model = make(tmp_path / name, rows=SIZES[name]["vocab_size"], tokens=tokens, **SIZES[name])
    found = judged(model, engine=engine)
    assert ("--tool-call-parser" in found.plan.command.argv) == (not lacks)
    told = [each for each in found.plan.warnings if each.id == "profiles.parser_tokens"]
    assert lacks in [*(each.values["tokens"] for each in told), ""]
    own = judged(model, "--tool-call-parser", "pythonic", engine=engine)
    assert {"--tool-call-parser", "pythonic"} <= set(own.plan.command.argv)
