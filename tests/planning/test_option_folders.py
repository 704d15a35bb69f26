"""Folders and tokenizers that do not fit a model are told before anything starts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import CheckedPlan, checked_plan
from gaudi_launch.errors import ExitCode, LaunchError
from tests.support.shards import shard

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
TOKEN, NEWEST = "<|python_tag|>", "vllm-gaudi@0.26.0"
NEEDED = {
    "--tokenizer": "tokenizer.json",
    "--speculative-config": "config.json",
    "--lora-modules": "adapter_config.json",
}


def make(
    folder: Path, *, rows: int = 100, tokens: tuple[str, ...] = (TOKEN,), **changed: int
) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}), encoding="utf-8")
    vocab = {"added_tokens": [{"content": each} for each in tokens], "model": {"vocab": {}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocab), encoding="utf-8")
    shard(
        folder / "model.safetensors",
        {"model.embed_tokens.weight": ("BF16", [rows, 1], rows * 2)},
    )
    return folder


def judged(
    folder: Path, *extra: str, engine: str = "vllm-gaudi@0.26.0", force: bool = False
) -> CheckedPlan:
    """Return the checked plan, after that serve gave the same verdict."""
    options = LaunchOptions(
        model=str(folder),
        cards="1",
        engine=engine,
        machine="simulated:hls2",
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
    if option == "--lora-modules":
        adapter = f"a={path}" if form else json.dumps({"name": "a", "path": str(path)})
        return ("--enable-lora", option, adapter)
    return (option, str(path)) if form else (f"{option}={path}",)


def test_drawn_folders_of_options_are_compared_with_the_disk(tmp_path: Path) -> None:
    chance = random.Random(33)
    model = make(tmp_path / "model")
    for number in range(60):
        option = chance.choice([*NEEDED])
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
            with pytest.raises(LaunchError) as refused:
                judged(model, *given)
            assert refused.value.id == "models.no_config"
            continue
        found = judged(model, *given).incomplete
        if state == "complete":
            assert found is None, (option, state)
            continue
        assert found is not None and found.id == "serve.option_folder", (option, state)
        named = {"option": option, "path": str(folder), "needed": NEEDED[option]}
        assert found.text.values == named
        assert judged(model, *given, force=True).incomplete is None


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
    ("engine", "tokens", "added"),
    [
        ("vllm-gaudi@0.26.0", (TOKEN,), True),
        ("vllm-gaudi@0.26.0", ("<other>",), False),
        ("vllm-gaudi@0.21.0", (), False),
        # its parser looks for no token
        ("vllm-gaudi@0.19.0", (), True),
    ],
)
def test_a_parser_of_a_profile_is_compared_with_the_tokenizer(
    tmp_path: Path, engine: str, tokens: tuple[str, ...], added: bool
) -> None:
    # the numbers by which the profile knows it
    sizes = {"num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256}
    folder = tmp_path / "Llama-3.1-8B-Instruct"
    model = make(folder, rows=128256, tokens=tokens, **sizes)
    found = judged(model, engine=engine)
    assert ("--tool-call-parser" in found.plan.command.argv) == added
    told = [each for each in found.plan.warnings if each.id == "profiles.parser_tokens"]
    assert [each.values["tokens"] for each in told] == ([] if added else [TOKEN])
    own = judged(model, "--tool-call-parser", "hermes", "--enable-auto-tool-choice", engine=engine)
    assert "profiles.parser_tokens" not in [each.id for each in own.plan.warnings]
