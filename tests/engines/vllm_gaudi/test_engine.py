"""vllm-gaudi: what is planned, what is refused, and that upstream vLLM's own parser takes every
argv."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine_args import NO_ARGS
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.cli import golden
from tests.support.every_case import examples
from tests.support.launches import HOSTS, requests
from tests.support.options_table import UPSTREAM, Refused, parse
from tests.support.vllm_gaudi_plans import (
    HLS2,
    HYBRID,
    LLAMA,
    plan,
    value,
    warnings,
)

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


_ALL = {"dtype": "bfloat16", "port": 30001}
_SHORT = {"max_model_len": 8192, "max_num_batched_tokens": 8192, **_ALL}
GUIDES: dict[str, dict[str, Any]] = {
    "2.2 Qwen2-72B-Instruct on four cards": {
        "model": "/models/Qwen2-72B-Instruct",
        "modules": (0, 1, 2, 3),
        "cards": 4,
        "max_num_seqs": 128,
        "input_range": (800, 1024),
        "output_range": (400, 512),
        **_SHORT,
        "cache_dir": "/data/warmup_cache",
    },
    "2.2 QwQ-32B with hot lengths": {
        "model": "/models/QwQ-32B",
        "cards": 8,
        "max_num_seqs": 24,
        "input_range": (4, 38912),
        "output_range": (4, 2048),
        "max_model_len": 40960,
        "max_num_batched_tokens": 40960,
        **_ALL,
        "reduce": (8, 24000),
        "cache_dir": "/data/warmup_cache",
    },
    # -q, its neural compressor switch, is a QUANT_CONFIG here; the converted checkpoint needs none.
    # Its own code is agreed to, which the start script does unasked
    "3.1 DeepSeek-R1-0528-G2 on eight cards": {
        "model": "/data/hf_models/DeepSeek-R1-0528-G2",
        "cards": 8,
        "host": "127.0.0.1",
        "port": 8688,
        "max_num_seqs": 128,
        "max_model_len": 16384,
        "trust_remote_code": True,
        "cache_dir": "/data/warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Llama-70B on four cards": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Llama-70B",
        "cards": 4,
        "modules": (0, 1, 2, 3),
        "max_num_seqs": 128,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/70B_warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Qwen-32B on two cards": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Qwen-32B",
        "cards": 2,
        "modules": (0, 1),
        "max_num_seqs": 32,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/32B_warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Llama-8B on one card": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Llama-8B",
        "cards": 1,
        "modules": (0,),
        "max_num_seqs": 32,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/8B_warmup_cache",
    },
    # the configurations that the 1.16 guide names as validated
    **{
        f"1.16 {name} on {cards}": {
            "model": f"/models/{name}",
            "cards": cards,
            "max_model_len": length,
        }
        for name, cards, length in (
            ("Llama-2-7b-chat-hf", 1, 2048),
            ("Llama-2-70b-chat-hf", 8, 4096),
            ("Mistral-7B-Instruct-v0.3", 2, 8192),
            ("Mixtral-8x7B-Instruct-v0.1", 2, 8192),
        )
    },
}


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


def of_guide(wishes: dict[str, Any]) -> Plan:
    request = Request(engine="vllm-gaudi", files_dir="/cache/buckets", **wishes)
    return make_plan(
        request, HLS2, known_model(request.model, must_exist=False), find("vllm-gaudi")
    )


def shown(made: Plan) -> dict[str, Any]:
    """A plan as the golden file keeps it: buckets counted, and their file without the digest of
    its text."""
    document = json.loads(
        re.sub(r"buckets-[0-9a-f]{12}", "buckets-DIGEST", json.dumps(made.to_json()))
    )
    buckets = document["buckets"]
    return {
        "argv": document["argv"],
        "env": document["env"],
        "modules": document["modules"],
        "cpus": document["cpus"],
        "memory": document["memory"],
        "num_blocks": made.num_blocks,
        "buckets": None
        if buckets is None
        else {
            "strategy": buckets["strategy"],
            "prompt": len(buckets["prompt"]),
            "decode": len(buckets["decode"]),
            "largest": [buckets["prompt"][-1], buckets["decode"][-1]],
        },
        "warmup_seconds": (document["estimate"] or {}).get("warmup_seconds"),
        "settings": {s["name"]: f"{s['source']}: {s['reason']}" for s in document["settings"]},
        "warnings": [warning["id"] for warning in document["warnings"]],
    }


@pytest.mark.parametrize("name", GUIDES)
def test_each_guide_command_on_this_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    made = of_guide(GUIDES[name])
    file = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    golden(f"vllm-gaudi/{file}.json", json.dumps(shown(made), indent=1, ensure_ascii=False) + "\n")
    for version in UPSTREAM:
        assert parse(version, made.command.argv[4:]).model_tag == GUIDES[name]["model"]


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
