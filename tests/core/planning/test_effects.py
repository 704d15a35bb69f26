"""What the user's options change: marks, overrides of the model, adapters and draft models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.known_versions import newest, versions
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.user_options import enumerated
from gaudi_launch.core.engines.version_facts import names_of
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import GIB
from gaudi_launch.core.planning.effects import additions, draft_of, with_overrides
from gaudi_launch.core.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.passthrough import marks
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.cli import output
from tests.support.local_hub import Hub
from tests.support.refusals import failing

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
ENGINE = newest("vllm-gaudi").label


def args(*words: str) -> EngineArgs:
    return engine_args(table=option_table(UPSTREAM), user=words)


def plan(*extra: str, model: Model | None = None) -> Plan:
    request = Request(LLAMA, extra=extra, cards=1, force=True)
    model = with_overrides(model or known_model(LLAMA, False), args(*extra))
    return make_plan(request, simulated.make("hls2"), model, find(ENGINE))


def test_every_option_of_every_release_has_exactly_one_mark() -> None:
    listed = {name for each in versions() for name in names_of(each).options}
    for table in (paths.profiles_dir() / "engines" / "options").glob("*.json"):
        listed |= {option.name for option in option_table(table.stem).options}
    marked = [name for mark in marks().values() for name in mark]
    assert sorted(marked) == sorted(listed)


def free_values() -> list[str]:
    """Return the unmodelled options of the newest release that take more than one value."""
    names, ended = names_of(newest("vllm-gaudi")).options, enumerated(ENGINE)
    listed = [name for name in marks()["not_modelled"] if name in names and name not in ended]
    return sorted(name for name in listed if not names[name].values)


@pytest.mark.parametrize("name", free_values())
def test_a_plan_prints_no_number_that_an_option_without_a_model_changes(name: str) -> None:
    made = plan(name, "7")
    assert (made.memory, made.num_blocks, made.buckets, made.estimate) == ({}, None, None, None)
    assert [each.values for each in made.warnings if each.id == "plan.not_modelled"] == [
        {"options": name}
    ]
    neutral = marks()["not_modelled"][name]
    if neutral:
        unchanged = plan(name, neutral)
        assert (unchanged.memory, unchanged.num_blocks) == (plan().memory, plan().num_blocks)


def test_a_flag_that_is_off_changes_no_number() -> None:
    flags = [each for each in option_table("vllm-upstream").options if each.off]
    names, unchanged = names_of(newest("vllm-gaudi")).options, plan()
    for flag in flags:
        if flag.name in names and flag.name in marks()["not_modelled"]:
            made = plan(flag.name, flag.off[0])
            assert (made.memory, made.warnings) == (unchanged.memory, unchanged.warnings)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--hf-overrides", '{"num_hidden_layers": 8}'), (8, 131072, 2795786240)),
        (("--hf-overrides.num_hidden_layers", "8"), (8, 131072, 2795786240)),
        (("--hf-overrides", '{"max_position_embeddings": 8192}'), (32, 8192, 8030261248)),
        (("--rope-scaling", '{"rope_type": "yarn", "factor": 2.0}'), (32, 262144, 8030261248)),
        (
            (
                "--hf-overrides",
                '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0,'
                ' "original_max_position_embeddings": 8192}}',
            ),
            (32, 32768, 8030261248),
        ),
        (("--hf-overrides", '{"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}'), None),
        (("--hf-overrides", "a.b.c"), None),
    ],
)
def test_overrides_change_the_model_before_anything_is_computed(
    words: tuple[str, ...], expected: tuple[int, int, int] | None
) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    counted = {"parameters": 8030261248, "weight_bytes": 16060522496}
    by_config = model_from_config("/m/L", config, counted)
    for model in (by_config, replace(by_config, config={}, source="name")):
        found = with_overrides(model, args(*words))
        sizes = (found.layers, found.max_position_embeddings, found.parameters)
        if expected is None:
            assert sizes == (32, 131072, 8030261248)
        else:
            assert sizes[:2] == expected[:2]
            assert sizes[2] == pytest.approx(expected[2], rel=1e-3)
            assert found.weight_bytes == pytest.approx(2 * expected[2], rel=1e-3)


def test_slots_and_ranks_of_adapters_are_weights_on_each_card() -> None:
    model = known_model(LLAMA, False)
    words = ("--enable-lora", "--max-loras", "4", "--max-lora-rank", "64")
    # per layer and rank: q, k, v, o, gate, up, down with 4096, 1024 and 14336 values
    each = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert additions(model, 1, args(*words)).weights == 2 * 4 * 64 * 32 * each
    assert plan(*words).memory["weights"] == round(
        plan().memory["weights"] + 8 * 64 * 32 * each / GIB, 2
    )
    mixture = replace(model, moe=True)
    assert additions(mixture, 1, args(*words)).unknown == ("--enable-lora",)


@pytest.mark.usefixtures("own_folders")
def test_a_draft_head_is_counted_from_its_folder_a_hub_or_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(head), encoding="utf-8")
    config = {"method": "eagle3", "model": str(tmp_path), "num_speculative_tokens": 3}
    words = ("--speculative-config", json.dumps(config))
    draft = draft_of(args(*words))
    assert draft == known_model(str(tmp_path))
    found, plain = plan(*words), plan()
    assert found.memory["weights"] > plain.memory["weights"] + 0.4
    assert (found.num_blocks or 0) < (plain.num_blocks or 0) * 32 / 33
    # of which only the name is known: as a layer of the model, which this head is
    elsewhere = ("--speculative-config", json.dumps({**config, "model": "me/head"}))
    assert draft_of(args(*elsewhere)) is None
    assumed = plan(*elsewhere)
    assert (assumed.memory, assumed.num_blocks) == (found.memory, found.num_blocks)
    assert "plan.draft_assumed" in [each.id for each in assumed.warnings]
    assert "plan.draft_assumed" not in [each.id for each in found.warnings]
    mixture = replace(known_model(LLAMA, False), moe=True)
    assert additions(with_overrides(mixture, args(*elsewhere)), 1, args(*elsewhere)).unknown
    with Hub({"config.json": json.dumps(head).encode()}, repo="me/head") as hub:
        for name, value in hub.environment().items():
            monkeypatch.setenv(name, value)
        assert plan(*elsewhere).memory == found.memory
    line = ("plan", LLAMA, "--machine", "simulated:hls2", "-n", "1", "--")
    assert "\nspeed " in output(capsys, *line)[1]
    assert "\nspeed " not in output(capsys, *line, *words)[1]
    ngram = plan("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    assert ngram.memory["weights"] == plain.memory["weights"]


def test_the_layers_for_further_tokens_are_loaded_for_their_method() -> None:
    model = replace(known_model(LLAMA, False), unloaded_bytes=3 << 30)
    words = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}')
    found = additions(model, 2, args(*words))
    assert (found.weights, found.block, found.unknown) == (1.5 * GIB, 128 * 2 * 4 * 128 * 2, ())
    unknown = additions(known_model(LLAMA, False), 2, args(*words)).unknown
    assert unknown == ("--speculative-config",)


def test_without_chunked_prefill_a_step_has_a_complete_prompt() -> None:
    argv = plan("--no-enable-chunked-prefill").command.argv
    assert argv[argv.index("--max-num-batched-tokens") + 1] == "16384"
    request = Request(
        LLAMA, extra=("--no-enable-chunked-prefill",), cards=1, max_num_batched_tokens=2048
    )
    with failing("gaudi.unchunked_tokens", ExitCode.USAGE):
        make_plan(request, simulated.make("hls2"), known_model(LLAMA, False), find(ENGINE))
