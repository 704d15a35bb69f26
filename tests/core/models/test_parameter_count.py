"""Parameters by config.json alone, against the classes of transformers on the meta device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import (
    default_inner,
    kv_widths,
    layer_kinds,
    parameters_of,
)
from gaudi_launch.core.models.sizing import kv_bytes_per_token, weight_bytes
from gaudi_launch.core.predict.shape import shape_of
from tests.support.cli import golden
from tests.support.places import TESTS

SIZES = json.loads((TESTS / "data" / "models" / "sizes.json").read_text(encoding="utf-8"))
MODELS: dict[str, dict[str, Any]] = SIZES["models"]


def read(name: str) -> Model:
    return model_from_config(name, MODELS[name]["config"])


def test_at_least_sixty_configurations_are_compared() -> None:
    assert len(MODELS) >= 60
    families = {read(name).model_type for name in MODELS}
    assert len(families) >= 25


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameters_and_those_of_experts_are_those_of_the_class(name: str) -> None:
    found = parameters_of(read(name))
    assert found is not None
    counted = {"total": found.total, "experts": sum(layer.experts for layer in found.layers)}
    known = MODELS[name]["parameters"]
    assert counted == pytest.approx({each: known[each] for each in counted}, rel=0.01)


ERNIE = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
    "model_type": "ernie4_5_moe_vl",
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "vocab_size": 103424,
    "moe_num_experts": [64, 64],
    "moe_intermediate_size": [1536, 512],
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": [1, 1],
    "tie_word_embeddings": True,
    "vision_config": {
        "model_type": "DFNRope_vision_transformer",
        "depth": 32,
        "hidden_size": 1280,
        "mlp_ratio": 4,
        "patch_size": 14,
        "spatial_merge_size": 2,
    },
}


# as transformers 5 writes it
NEWER = {
    **ERNIE,
    "model_type": "ernie4_5_vl_moe",
    "moe_num_experts": 64,
    "moe_layer_start_index": None,
    "mlp_layer_types": ["dense"] + 27 * ["sparse"],
}


@pytest.mark.parametrize("config", [ERNIE, NEWER])
def test_experts_by_modality_are_counted_with_the_width_of_each(config: dict[str, Any]) -> None:
    # profiles/models/ernie-4.5-vl-28b-a3b.yaml: counted by transformers' class on the meta device
    model = model_from_config("m", config)
    found = parameters_of(model)
    assert found is not None
    assert found.total == pytest.approx(29_399_294_336, rel=0.01)
    assert weight_bytes(model, "bfloat16") == found.total * 2
    assert shape_of(model) is None


def test_a_number_of_the_document_counts_before_another_of_its_class() -> None:
    # transformers 5.19: Step3p5TextConfig has num_local_experts 128 from the class that it extends
    text = {"model_type": "step3p5", "n_routed_experts": 288}
    assert model_from_config("m", {"model_type": "step3p7", "text_config": text}).experts == 288
    assert model_from_config("m", {"is_moe": False, "num_experts": 16384}).experts is None


def test_experts_by_modality_are_not_guessed() -> None:
    config = {**MODELS["Qwen/Qwen3-30B-A3B"]["config"], "moe_num_experts": [64, 64]}
    model = model_from_config("m", config)
    assert parameters_of(model) is None
    assert shape_of(model) is None
    assert weight_bytes(model, "bfloat16") is None


def test_a_model_of_which_only_the_name_is_known_has_no_size() -> None:
    assert weight_bytes(Model("m", "m"), "bfloat16") is None
    assert parameters_of(Model("m", "m")) is None
    assert kv_widths(Model("m", "m")) == ()


def test_windowed_layers_have_their_own_heads() -> None:
    # 9 full layers with 4 heads of 192 + 128, 39 with a window with 8 heads of 192 + 128
    assert kv_bytes_per_token(read("XiaomiMiMo/MiMo-V2-Flash")) == 2 * (9 * 4 * 320 + 39 * 8 * 320)


def test_gemma4_has_wider_heads_in_its_full_layers() -> None:
    # 25 windowed layers with 8 heads of 256, 5 full ones with 2 heads of 512, keys and values
    assert kv_bytes_per_token(read("google/gemma-4-26B-A4B")) == 2 * (25 * 8 * 512 + 5 * 2 * 1024)


def total(config: dict[str, Any], **changes: Any) -> int:
    found = parameters_of(model_from_config("m", {**config, **changes}))
    assert found is not None
    return found.total


def parts(model: Model) -> dict[str, int]:
    found = parameters_of(model)
    assert found is not None
    return {
        "embedding": found.embedding,
        "head": found.head,
        "attention": sum(layer.attention for layer in found.layers),
        "mlp": sum(layer.mlp for layer in found.layers),
        "experts": sum(layer.experts for layer in found.layers),
        "tower": found.tower,
    }


def compare(file: str, found: Mapping[str, object]) -> None:
    golden(file, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def test_every_part_is_as_recorded() -> None:
    """The total is within 1 % of the class's; a part must not change unseen."""
    found = {name: parts(read(name)) for name in sorted(MODELS)}
    found["ernie, by modality"] = parts(model_from_config("m", ERNIE))
    compare("parameter-counts.json", found)


def test_layers_and_heads_are_as_recorded() -> None:
    found = {}
    for name in sorted(MODELS):
        model = read(name)
        kinds = Counter(layer_kinds(model))
        widths = Counter(f"{heads} x {width}" for heads, width in kv_widths(model))
        found[name] = {"kinds": dict(sorted(kinds.items())), "widths": dict(sorted(widths.items()))}
    compare("layer-kinds.json", found)


def test_the_width_that_a_class_decides() -> None:
    assert default_inner(Model("m", "m", hidden_size=100)) == 350
    assert default_inner(Model("m", "m", hidden_size=100, model_type="gpt2")) == 400
