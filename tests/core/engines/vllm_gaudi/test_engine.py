"""vllm-gaudi: what is planned, what is refused, and that upstream vLLM's own parser takes every
argv."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_args import NO_ARGS
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.every_case import examples
from tests.support.launches import HOSTS, requests
from tests.support.options_table import UPSTREAM, Refused, parse
from tests.support.vllm_gaudi_plans import HYBRID, LLAMA, plan, value, warnings

MOE = replace(LLAMA, name="mixture", architecture="Qwen3MoeForCausalLM", moe=True, experts=128)
BERT = replace(
    LLAMA, name="bge-m3", architecture="XLMRobertaModel", model_type="xlm-roberta", heads=16
)
BERT = replace(BERT, max_position_embeddings=514, kv_heads=16)
VISION = replace(LLAMA, architecture="Qwen2_5_VLForConditionalGeneration", multimodal=("vision",))


def test_the_table_refuses_what_upstream_dropped() -> None:
    assert UPSTREAM
    for version in UPSTREAM:
        for words in (
            ["--device", "hpu"],
            ["--num-scheduler-steps", "8"],
            ["--max-num-prefill-seqs", "1"],
        ):
            with pytest.raises(Refused):
                parse(version, ["/m", *words])


MODELS = (
    LLAMA,
    MOE,
    BERT,
    VISION,
    HYBRID,
    Model("/m/unknown", "unknown"),
    replace(LLAMA, quantization="awq"),
)


@pytest.mark.parametrize("version", UPSTREAM)
@settings(max_examples=examples(60, 150), deadline=None)
@given(
    request_=requests,
    model=st.sampled_from(MODELS),
    host=st.sampled_from(sorted(HOSTS)),
    data=st.data(),
)
def test_any_request_makes_an_argv_that_upstream_takes(
    version: str, request_: Request, model: Model, host: str, data: st.DataObject
) -> None:
    asked = (
        "scheduler_steps",
        "no_zero_padding",
        "inc_fp8",
        "max_capture_len",
        "dtype",
        "quant_config",
        "reduce",
    )
    back = data.draw(st.sets(st.sampled_from(asked)))
    blank: dict[str, Any] = {
        name: False if name.startswith(("no_", "inc")) else None for name in back
    }
    folder = data.draw(st.sampled_from(["", "/cache"]))
    request_ = replace(request_, model=model.path, tuning="auto", files_dir=folder, **blank)
    try:
        made = make_plan(request_, HOSTS[host], model, find("vllm-gaudi"))
    except LaunchError as error:
        assert error.exit_code != 0 and str(error)
        return
    assert made.command.argv[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")
    parsed = parse(version, made.command.argv[4:])
    assert parsed.model_tag == model.path
    assert parsed.tensor_parallel_size == len(made.placement.modules)
    assert all(isinstance(each, str) for each in made.command.env.values())


def test_a_converted_checkpoint_is_scaled_by_a_gaudi3() -> None:
    model = replace(LLAMA, quantization="fp8", dtype="bfloat16", converted=True)
    made = make_plan(
        Request(model=model.path), simulated.make("gaudi3-oam"), model, find("vllm-gaudi")
    )
    assert "VLLM_SCALE_ADJUSTMENT" not in made.command.env


KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}


@pytest.mark.parametrize(
    ("config", "seqs", "length"),
    [({}, 256, 32768), (KINDS, 256, 32768), (KINDS, 128, 16384), (KINDS, 300, 8192)],
)
def test_no_planned_bucket_is_larger_than_the_cache(
    config: dict[str, Any], seqs: int, length: int
) -> None:
    model = replace(LLAMA, config=config, layers=32)
    made = plan(model, max_num_seqs=seqs, max_model_len=length)
    assert made.buckets is not None and made.num_blocks is not None
    assert made.bucket_strategy == "file"
    # shared prefixes are referenced by each of the requests
    assert max(context for _, _, context in made.buckets.decode) <= 3 * made.num_blocks


def test_it_is_the_engine_where_it_is_installed() -> None:
    found = Installed(
        "/e/python", "vllm-gaudi", {"vllm-gaudi": "0.26.0"}, {"plugin": "0.26.0", "vllm": "0.26.0"}
    )
    engine = find("auto", found)
    assert (engine.identity.name, engine.identity.version, engine.identity.python) == (
        "vllm-gaudi",
        "0.26.0",
        "/e/python",
    )
    # by its exact number too, but no other one
    assert find("vllm-gaudi@0.26.0", found).identity.python == "/e/python"
    assert find("vllm-gaudi@0.24.0", found).identity.python is None


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", True),
        ("google/gemma-3-27b-it", True),
        ("google/gemma-3-1b-it", False),
        ("OpenGVLab/InternVL3-8B", True),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", True),
        ("meta-llama/Llama-3.1-8B-Instruct", False),
        ("nvidia/Provl-8B", False),
    ],
)
def test_images_are_told_by_the_name_where_there_is_nothing_else(name: str, sees: bool) -> None:
    made = plan(known_model(name, False), cards=2)
    assert (value(made, "--limit-mm-per-prompt") is not None) == sees
    assert ("engines.vision_by_name" in warnings(made)) == sees
    # a model that embeds stays one
    assert value(plan(known_model("x/gme-Qwen2-VL-2B-embedding", False)), "--runner") == "pooling"


@pytest.mark.parametrize(
    ("architecture", "keeps_nothing", "writes"),
    [
        ("BertModel", True, False),
        ("XLMRobertaForSequenceClassification", True, False),
        ("MistralModel", False, False),
        ("LlamaForCausalLM", False, True),
        # the only layers that its class names are those of its vision tower
        ("Ovis", False, True),
    ],
)
def test_encoders_have_no_cache_and_poolers_no_speed(
    architecture: str, keeps_nothing: bool, writes: bool
) -> None:
    engine = find("vllm-gaudi@0.26.0")
    model = Model("m", "m", architecture=architecture)
    assert (engine.pools(model, NO_ARGS), engine.generates(model, NO_ARGS)) == (
        keeps_nothing,
        writes,
    )
