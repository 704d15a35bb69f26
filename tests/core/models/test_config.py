"""config.json of each family, odd and broken ones, and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.config import (
    counted_with,
    model_from_config,
    name_of,
    read_config,
    read_model,
)
from gaudi_launch.core.models.sizing import activation_bytes, kv_bytes_per_token, weight_bytes
from gaudi_launch.core.planning.known_model import known_model
from tests.support.refusals import failing

# the keys that matter of each family's config.json, and what they mean
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_key_value_heads": 8,
         "num_hidden_layers": 32, "intermediate_size": 14336, "torch_dtype": "bfloat16"},
        {"moe": False, "heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16"},
    ),
    "no kv heads": ({"num_attention_heads": 32, "hidden_size": 4096}, {"kv_heads": 32,
                                                                       "head_dim": 128}),
    "mixtral": (
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
         "intermediate_size": 14336},
        {"moe": True, "experts": 8, "intermediate_size": 28672},
    ),
    "qwen3 moe": (
        {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 768,
         "intermediate_size": 6144, "head_dim": 128, "hidden_size": 2048,
         "num_attention_heads": 32},
        {"moe": True, "experts": 128, "intermediate_size": 6144, "head_dim": 128},
    ),
    "deepseek": (
        {"model_type": "deepseek_v3", "n_routed_experts": 256, "n_shared_experts": 1,
         "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "intermediate_size": 18432,
         "kv_lora_rank": 512, "qk_rope_head_dim": 64,
         "quantization_config": {"quant_method": "fp8"}},
        {"moe": True, "experts": 256, "mla_rank": 576, "quantization": "fp8",
         "intermediate_size": 18432},
    ),
    "minicpm3 has ranks and an ordinary cache": (
        {"model_type": "minicpm3", "kv_lora_rank": 256, "qk_rope_head_dim": 32,
         "num_attention_heads": 40},
        {"mla_rank": None, "kv_heads": 40},
    ),
    "glm": (
        {"model_type": "glm4_moe", "n_routed_experts": 160, "n_shared_experts": 1,
         "num_experts_per_tok": 8,
         "moe_intermediate_size": 1536, "intermediate_size": 12288, "num_key_value_heads": 8},
        {"moe": True, "experts": 160, "kv_heads": 8, "intermediate_size": 13824},
    ),
    "chatglm": (
        {"model_type": "chatglm", "multi_query_attention": True, "multi_query_group_num": 2,
         "num_layers": 40,
         "num_attention_heads": 32, "hidden_size": 4096, "kv_channels": 128, "seq_length": 131072},
        {"kv_heads": 2, "layers": 40, "head_dim": 128, "max_position_embeddings": 131072},
    ),
    "llama4": (
        {"model_type": "llama4", "vision_config": {"hidden_size": 1408}, "text_config": {
            "model_type": "llama4_text", "num_local_experts": 16, "num_experts_per_tok": 1,
            "hidden_size": 5120,
            "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_key_value_heads": 8}},
        {"moe": True, "experts": 16, "hidden_size": 5120, "kv_heads": 8, "multimodal": ("vision",),
         "intermediate_size": 16384, "model_type": "llama4"},
    ),
    "omni, two levels": (
        {"thinker_config": {"text_config": {"num_hidden_layers": 28}, "audio_config": {}}},
        {"layers": 28}
    ),
    "falcon": ({"multi_query": True, "num_attention_heads": 71, "n_layer": 32}, {"kv_heads": 1,
                                                                                 "layers": 32}),
    "dbrx": (
        {"n_layers": 40, "n_heads": 48, "d_model": 6144, "attn_config": {"kv_n_heads": 8},
         "ffn_config": {"moe_num_experts": 16}},
        {"layers": 40, "heads": 48, "kv_heads": 8, "experts": 16, "moe": True},
    ),
    "a number a layer": ({"num_attention_heads": 32, "num_key_value_heads": [1, 4, 8]},
                         {"kv_heads": 8}),
    "hybrid by list": (
        {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"]},
        {"layers": 4, "attention_layers": 1},
    ),
    "hybrid by interval": ({"num_hidden_layers": 48, "full_attention_interval": 4},
                           {"attention_layers": 12}),
    "hybrid by pattern": ({"num_hidden_layers": 6, "hybrid_override_pattern": "M-M*M-"},
                          {"attention_layers": 1}),
    "one expert is none": ({"num_local_experts": 1}, {"moe": False}),
    "remote code": ({"auto_map": {"AutoModel": "x.Y"}}, {"remote_code": True}),
    "wrong kinds": (
        {"architectures": "x", "num_hidden_layers": "32", "hidden_size": True,
         "quantization_config": [],
         "text_config": 5, "num_attention_heads": -1, "torch_dtype": 7},
        {"architecture": None, "layers": None, "hidden_size": None, "heads": None, "dtype": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_of_each_family(family: str) -> None:
    document, expected = FAMILIES[family]
    model = model_from_config("m", document)
    assert {name: getattr(model, name) for name in expected} == expected


KEYS = sorted({key for document, _ in FAMILIES.values() for key in document})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_document_is_a_model(document: dict[str, Any]) -> None:
    model = model_from_config("m", document)
    for number in (
        model.layers,
        model.heads,
        model.kv_heads,
        model.head_dim,
        model.experts,
        model.mla_rank,
    ):
        assert number is None or number > 0
    assert (kv_bytes_per_token(model) or 0) >= 0
    assert activation_bytes(model, 100) >= 0
    assert weight_bytes(model) is None


def folder(tmp_path: Path, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / "config.json").write_bytes(data)
    return str(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        "{",
        "{'a': 1}",
        b"\xff\xfe",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
        "null",
    ],
)
def test_broken_config_is_a_sentence(tmp_path: Path, text: str | bytes) -> None:
    with failing("models.bad_config", ExitCode.MODEL) as caught:
        read_model(folder(tmp_path, text))
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "id"),
    [("/no/such/folder", "models.no_folder"), ("/no/model.gguf", "models.gguf"), ("a\0b", None)],
)
def test_what_is_no_folder(path: str, id: str | None) -> None:
    with pytest.raises(LaunchError) as caught:
        read_model(path)
    assert caught.value.exit_code == ExitCode.MODEL
    assert id is None or caught.value.id == id


@pytest.mark.parametrize(
    ("address", "pull"),
    [
        (
            "https://www.modelscope.cn/models/Qwen/QwQ-32B/files",
            "pull Qwen/QwQ-32B --from modelscope",
        ),
        ("https://huggingface.co/Qwen/QwQ-32B?x=1", "pull Qwen/QwQ-32B"),
        ("s3://bucket/Qwen3-8B", "pull OWNER/NAME"),
        ("file:///models/Qwen3-8B", "pull OWNER/NAME"),
        ("hf://", "pull OWNER/NAME"),
    ],
)
def test_the_address_of_a_page_is_answered_with_its_hub_id(address: str, pull: str) -> None:
    with failing("models.address", ExitCode.USAGE) as caught:
        known_model(address, must_exist=False)
    assert dict(caught.value.text.values) == {"found": address, "pull": pull}


@pytest.mark.parametrize(
    ("document", "facts"),
    [
        (
            {"text_config": {"quantization_config": {"quant_method": "FP8"}, "n_head": 4,
                             "n_embd": 32}},
            {"quantization": "fp8", "heads": 4, "hidden_size": 32, "head_dim": 8},
        ),
        ({"quantization_config": {"quant_algo": "FP8"}}, {"quantization": "fp8"}),
        ({"quantization_config": {}}, {"quantization": None}),
        ({"ffn_config": {"moe_num_experts": 16}}, {"experts": 16, "moe": True}),
        ({"model_type": "gpt2", "n_embd": 8}, {"intermediate_size": 32}),
        ({"model_type": "gpt2", "n_embd": 8, "n_inner": 5}, {"intermediate_size": 5}),
        ({"model_type": "gpt2", "n_embd": 8, "intermediate_size": 6}, {"intermediate_size": 6}),
        (
            {"model_type": "falcon", "hidden_size": 8, "ffn_hidden_size": 7},
            {"intermediate_size": 7},
        ),
        (
            {"quantization_config": {"quant_method": "awq"},
             "text_config": {"quantization_config": {"quant_method": "gptq"}}},
            {"quantization": "awq"},
        ),
        (
            {"n_heads": 8, "d_model": 64, "attn_config": {"kv_n_heads": 2}},
            {"kv_heads": 2, "head_dim": 8},
        ),
        ({"num_attention_heads": 4, "num_kv_heads": 2}, {"kv_heads": 2}),
        ({"num_attention_heads": 4, "n_head_kv": 2}, {"kv_heads": 2}),
        ({"num_attention_heads": 4, "num_key_value_heads": [1, 3, None]}, {"kv_heads": 3}),
        ({"num_attention_heads": 4, "num_key_value_heads": []}, {"kv_heads": 4}),
        (
            {"num_attention_heads": 4, "multi_query": True, "new_decoder_architecture": True,
             "num_kv_heads": 2},
            {"kv_heads": 2},
        ),
        ({"num_attention_heads": 4, "multi_query_attention": True}, {"kv_heads": 4}),
        (
            {"model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_token": 2,
             "moe_intermediate_size": 10, "shared_expert_intermediate_size": 7},
            {"intermediate_size": 27, "moe": True, "experts": 4},
        ),
        (
            {"num_experts": 4, "moe_topk": 3, "moe_intermediate_size": 10, "n_shared_experts": 2},
            {"intermediate_size": 50},
        ),
        ({"num_experts": 4, "ffn_hidden_size": 9}, {"intermediate_size": 9, "experts": 4}),
        ({"num_experts": 1, "n_inner": 9}, {"intermediate_size": 9, "moe": False}),
        ({"num_experts": 4, "moe_intermediate_size": 10}, {"intermediate_size": 10}),
        ({"layers_block_type": ["mamba", "attention"]}, {"layers": 2}),
        (
            {"num_hidden_layers": 5, "layer_types": ["full_attention", "linear_attention", "hybrid",
                                                     "mamba", 1]},
            {"layers": 5, "attention_layers": 2},
        ),
        ({"num_hidden_layers": 5}, {"attention_layers": 5}),
        ({"text_config": {"torch_dtype": "torch.float16"}}, {"dtype": "float16"}),
        ({"dtype": "float32", "torch_dtype": "float16"}, {"dtype": "float32"}),
        ({"text_config": {"tie_word_embeddings": True}}, {"tie_word_embeddings": True}),
        ({"tie_word_embeddings": 1}, {"tie_word_embeddings": None}),
        ({"model_max_length": 9, "max_position_embeddings": 5}, {"max_position_embeddings": 9}),
        ({"max_position_embeddings": 9, "seq_length": 5}, {"max_position_embeddings": 5}),
        ({"auto_map": {"A": "b.C"}}, {"remote_code": True}),
        ({"architectures": ["A", "B"], "model_type": "m"}, {"architecture": "A",
                                                            "model_type": "m"}),
        ({"architectures": []}, {"architecture": None}),
        ({"hidden_size": 10**12, "vocab_size": True}, {"hidden_size": None, "vocab_size": None}),
        ({"hidden_size": 10**12 - 1, "vocab_size": 0}, {"hidden_size": 10**12 - 1,
                                                        "vocab_size": None}),
    ],
)  # fmt: skip
def test_facts_by_their_other_names(document: dict[str, Any], facts: dict[str, Any]) -> None:
    found = model_from_config("me/m", document)
    assert {name: getattr(found, name) for name in facts} == facts


def test_what_config_json_states_for_counting_weights() -> None:
    def counted(**document: Any) -> tuple[int, int | None]:
        return counted_with(document)

    assert counted() == (4, None)
    assert counted(quantization_config={"bits": 8}, num_hidden_layers=3) == (8, 3)
    assert counted(quantization_config={"w_bit": 2}) == (2, None)
    assert counted(quantization_config={"bits": 5}) == (4, None)
    nested = {"quantization_config": {"bits": 3}, "n_layer": 7}
    assert counted(text_config=nested, quantization_config={"bits": 8}) == (3, 7)


def config_error(folder: Path) -> tuple[str, int, dict[str, Any]]:
    with pytest.raises(LaunchError) as caught:
        read_config(folder)
    error = caught.value
    return error.id, int(error.exit_code), dict(error.text.values)


def test_config_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    missing = ("models.no_config", 5, {"path": str(tmp_path)})
    assert config_error(tmp_path) == missing
    file.mkdir()
    bad = ("models.bad_config", 5, {"path": str(file), "why": "Is a directory"})
    assert config_error(tmp_path) == bad
    file.rmdir()
    file.write_text("[]")
    bad[2]["why"] = "not a JSON object"
    assert config_error(tmp_path) == bad
    file.write_text("[")
    bad[2]["why"] = "Expecting value: line 1 column 2 (char 1)"
    assert config_error(tmp_path) == bad
    text = json.dumps({"a": "x"})
    file.write_text(text + " " * ((8 << 20) - len(text)))
    assert read_config(tmp_path) == {"a": "x"}
    with file.open("a") as more:
        more.write(" ")
    bad[2]["why"] = "it is larger than 8192 KiB"
    assert config_error(tmp_path) == bad
    file.write_text("{}")
    own = tmp_path / "hf_quant_config.json"
    own.write_text("x" * (9 << 20))
    assert config_error(tmp_path) == ("models.bad_config", 5, {**bad[2], "path": str(own)})
    own.write_text('{"quantization": {"quant_algo": "FP8"}}')
    settings = {"quant_method": "modelopt", "quant_algo": "FP8"}
    assert read_config(tmp_path) == {"quantization_config": settings}


_WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._]{0,9}", fullmatch=True)


@given(_WORD, st.lists(_WORD, min_size=1, max_size=3), _WORD, st.sampled_from(["", "/", "//"]))
def test_a_snapshot_of_the_hubs_cache_has_the_name_of_its_model(
    owner: str, words: list[str], commit: str, end: str
) -> None:
    for name in ("-".join(words), "--".join(words)):
        cached = f"/c/hub/models--{owner}--{name}/snapshots/{commit}{end}"
        assert name_of(cached) == name_of(f"{owner}/{name}") == name
