"""The embedded engine, compared as one: settings, sources, reasons, refusals."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.engines.base import WITHOUT
from tests.support.cli import golden
from tests.support.vllm_gaudi_plans import HLS2, LLAMA
from tests.support.whole_plans import Case, whole_plans

REFUSED = {
    "modules": (1, 2),
    "reduce": (8, 1024),
    "cache_dir": "/c",
    "scheduler_steps": 2,
    "quant_config": "/q.json",
    "padding_limit": "0.3",
    "max_prefill_seqs": 2,
    "max_capture_len": 2,
    "memory_utilization": "0.8",
}
LENGTHS = {"input_range": (2, 900), "output_range": (3, 9000), "max_num_batched_tokens": 4096}
ADDRESS = {"host": "0.0.0.0", "port": 9000, "served_name": "chat", "trust_remote_code": True}
CASES = [
    Case("usual", "cpu", LLAMA),
    Case(
        "options",
        "cpu",
        replace(LLAMA, remote_code=True),
        {
            **LENGTHS,
            **ADDRESS,
            "cards": 2,
            "dtype": "bfloat16",
            "max_model_len": 4096,
            "max_num_seqs": 2,
            "extra": ("--seed", "3"),
        },
    ),
    Case(
        "of the hub",
        "cpu",
        replace(LLAMA, path="org/small", name="small", max_position_embeddings=1024),
    ),
    Case("too long", "cpu", replace(LLAMA, max_position_embeddings=1024), {"max_model_len": 1025}),
    Case(
        "forced",
        "cpu",
        replace(LLAMA, max_position_embeddings=1024),
        {"max_model_len": 1025, "force": True},
    ),
    Case("type", "cpu", LLAMA, {"dtype": "fp8"}),
    Case("float16", "cpu", LLAMA, {"dtype": "float16"}),
    Case("reference", "cpu", LLAMA, {"tuning": "reference"}),
    Case("code", "cpu", replace(LLAMA, remote_code=True)),
    *(Case(name, "cpu", LLAMA, {name: REFUSED.get(name, True)}) for name in WITHOUT),
]


def test_each_request_has_its_recorded_plan() -> None:
    golden("engines/cpu.txt", whole_plans(CASES, HLS2))
