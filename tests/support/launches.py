"""Hosts and requests of any kind, for properties of plans."""

from __future__ import annotations

from hypothesis import strategies as st

from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.request import Request

HOSTS = {name: simulated.make(name) for name in ("hls2", "gaudi2e-8", "gaudi2e-4", "gaudi3-oam")}


MODELS = (
    Model(
        "/m/Qwen3-30B-A3B",
        "Qwen3-30B-A3B",
        "config.json",
        moe=True,
        experts=128,
        heads=32,
        kv_heads=4,
    ),
    Model(
        "/m/Qwen2-7B-Instruct",
        "Qwen2-7B-Instruct",
        "config.json",
        model_type="qwen2",
        moe=False,
        heads=32,
    ),
    Model("/m/unknown", "unknown"),
    Model(
        "/m/own", "own", "config.json", moe=False, remote_code=True, max_position_embeddings=32768
    ),
)


numbers = st.one_of(st.none(), st.integers(1, 300))


requests = st.builds(
    Request,
    model=st.sampled_from([model.path for model in MODELS]),
    cards=st.one_of(st.none(), st.integers(1, 8)),
    host=st.sampled_from([None, "0.0.0.0", "::"]),
    port=st.one_of(st.none(), st.integers(1, 65535)),
    dtype=st.sampled_from([None, "bfloat16", "float16", "fp8", "awq", "gptq"]),
    input_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 60000))),
    output_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 9000))),
    max_num_batched_tokens=st.one_of(st.none(), st.integers(128, 70000)),
    max_model_len=st.one_of(st.none(), st.integers(128, 70000)),
    max_num_seqs=numbers,
    scheduler_steps=st.sampled_from([None, None, 1, 8]),
    cache_dir=st.sampled_from([None, "/c"]),
    reduce=st.one_of(st.none(), st.tuples(st.integers(1, 64), st.integers(1, 30000))),
    skip_warmup=st.booleans(),
    profile=st.booleans(),
    no_zero_padding=st.booleans(),
    no_fused_sdpa=st.booleans(),
    inc_fp8=st.booleans(),
    quant_config=st.sampled_from([None, None, "/q.json"]),
    max_prefill_seqs=st.sampled_from([None, None, 4]),
    memory_utilization=st.sampled_from([None, None, "0.8"]),
    max_capture_len=st.sampled_from([None, None, 4096]),
    tuning=st.sampled_from(["auto", "reference"]),
    trust_remote_code=st.sampled_from([None, True]),
    served_name=st.sampled_from([None, "name"]),
)
