"""The memory of every row of the plugin's own launcher's table, against what that launcher
computes of it.

The answers were made by executing its rules; the data files name their sources.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.vllm_gaudi import memory as gaudi_memory
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.every_case import examples
from tests.support.places import DATA
from tests.support.refusals import failing

DATA = DATA / "autocalc"
CASES: list[dict[str, Any]] = json.loads(
    (DATA / "vllm-gaudi-main.json").read_text(encoding="utf-8")
)["cases"]
FORK: list[dict[str, Any]] = json.loads((DATA / "vllm-fork-1.22.json").read_text(encoding="utf-8"))[
    "rows"
]
HOSTS = {"GAUDI2": simulated.make("hls2"), "GAUDI3": simulated.make("gaudi3-oam")}
# of its own, the launcher counts a card's whole memory less 2 GiB; we count what a process was seen
# to get of it
CARD_GIB = {"GAUDI2": 96 - 2, "GAUDI3": 128 - 2}


def model_of(row: dict[str, Any]) -> Model:
    weights = int(row["MODEL_MEM_FROM_CONFIG"])
    return Model(
        path=row["MODEL"],
        name=row["MODEL"].split("/")[1],
        source="config.json",
        architecture="LlamaForCausalLM",
        weight_bytes=weights,
        parameters=weights // row["MODEL_DTYPE"],
        dtype="bfloat16",
        moe=False,
        layers=row["NUM_HIDDEN_LAYERS"],
        hidden_size=row["HIDDEN_SIZE"],
        heads=row["NUM_ATTENTION_HEADS"],
        kv_heads=row["NUM_KEY_VALUE_HEADS"],
        head_dim=row["HEAD_DIM"] or row["HIDDEN_SIZE"] // row["NUM_ATTENTION_HEADS"],
    )


def plan_of(case: dict[str, Any], *extra: str) -> Plan:
    return _plan(CASES.index(case), extra)


@cache
def _plan(number: int, extra: tuple[str, ...]) -> Plan:
    case = CASES[number]
    row, model = case["row"], model_of(case["row"])
    request = Request(
        model=model.path,
        cards=row["TENSOR_PARALLEL_SIZE"],
        max_model_len=row["MAX_MODEL_LEN"],
        max_num_seqs=case["answer"].get("MAX_NUM_SEQS", 64),
        max_num_batched_tokens=row["MAX_NUM_BATCHED_TOKENS"],
        extra=extra,
        files_dir="/cache",
    )
    return make_plan(request, HOSTS[case["device"]], model, find("vllm-gaudi"))


def share(made: Plan, name: str) -> float:
    return float(next(s.value or "" for s in made.settings if s.name == name))


def named(case: dict[str, Any]) -> str:
    return f"{case['device']}-{case['row']['MODEL'].split('/')[1]}"


def test_the_whole_table_is_here() -> None:
    assert len(CASES) == 40 and len({case["row"]["MODEL"] for case in CASES}) == 20
    for case in CASES:
        assert gaudi_memory.need_of(model_of(case["row"]), 1, 2048).known, named(case)


def rows() -> list[Any]:
    """Return the rows that its launcher answers, with and without contiguous attention."""
    modes = {"prefix": (), "contiguous": ("--no-enable-prefix-caching",)}
    return [
        pytest.param(case, mode, id=f"{named(case)}-{name}")
        for case in CASES
        if "error" not in case["answer"]
        for name, mode in modes.items()
    ]


@pytest.mark.parametrize(("case", "mode"), rows())
def test_the_same_or_better_than_the_launcher(case: dict[str, Any], mode: tuple[str, ...]) -> None:
    made, theirs, cards = plan_of(case, *mode), case["answer"], case["row"]["TENSOR_PARALLEL_SIZE"]
    assert made.num_blocks is not None
    free = made.memory["card"] - made.memory["weights"]
    # the weights, and one sequence's cache, are the same numbers
    assert made.memory["weights"] == pytest.approx(theirs["MODEL_MEM_IN_GB"] / cards, abs=0.01)
    block = sizing.block_bytes(model_of(case["row"]), cards)
    assert block is not None
    assert block * cards * case["row"]["MAX_MODEL_LEN"] / 128 / sizing.GIB == pytest.approx(
        theirs["KV_CACHE_PER_SEQ"]
    )
    # difference 1: our Gaudi2 is 0.45 GiB smaller, so a share may round one percent lower
    gap = CARD_GIB[case["device"]] - made.memory["card"]
    assert gap == pytest.approx({"GAUDI2": 0.45, "GAUDI3": 0}[case["device"]], abs=0.01)
    assert theirs["GPU_MEM_UTILIZATION"] - share(made, "--gpu-memory-utilization") in (
        pytest.approx(0),
        pytest.approx(0.01),
    )
    # difference 2: graphs are counted. With contiguous PA the engine's exponential list can be
    # longer than their estimate, by three percent of the share at most; the planned file never is
    more = share(made, "VLLM_GRAPH_RESERVED_MEM") - theirs["VLLM_GRAPH_RESERVED_MEM"]
    assert more <= (0.03 if mode else 0) + 1e-9
    # together: never less cache than theirs but for these two
    explained = gap + 0.01 * free + max(more, 0.0) * free
    assert made.memory["kv"] >= theirs["KV_CACHE_MEM"] - explained
    # and the number of requests that they would serve fits as well
    needed = theirs["MAX_NUM_SEQS"] * theirs["KV_CACHE_PER_SEQ"]
    assert made.num_blocks * block * cards / sizing.GIB >= needed


def test_in_most_rows_the_planned_file_leaves_more_cache() -> None:
    planned = [case for case in CASES if "error" not in case["answer"]]
    drawn = random.Random(1).sample(planned, examples(12, len(planned)))
    better = [plan_of(case).memory["kv"] > case["answer"]["KV_CACHE_MEM"] for case in drawn]
    assert sum(better) >= 33 / len(planned) * len(drawn)


def test_where_the_launcher_ends_in_an_error_we_say_why() -> None:
    (case,) = [case for case in CASES if "error" in case["answer"]]
    assert (
        named(case) == "GAUDI2-Llama-3.1-405B-Instruct"
        and "math domain error" in case["answer"]["error"]
    )
    with failing("fit.plan_refused", ExitCode.MACHINE):
        plan_of(case)


@pytest.mark.parametrize("row", FORK, ids=lambda row: str(row["MODEL"]).split("/")[1])
def test_the_rows_of_the_forks_launcher(row: dict[str, Any]) -> None:
    """1.22's table has other models besides: their weights and their cache a token."""
    model, cards = model_of(row), row["TENSOR_PARALLEL_SIZE"]
    weights = sizing.weight_bytes_per_card(model, cards)
    assert weights is not None
    # that column is 2 GiB short of this row's own bytes; its rules compute from the bytes, as we do
    stale = 2 if "granite-20b" in row["MODEL"] else 0
    assert weights * cards / sizing.GIB == pytest.approx(row["MODEL_MEM"] + stale, rel=0.001)
    token = sizing.kv_bytes_per_token(model, cards)
    # (and its shape, 8192 over 80 heads, is none that a model can have)
    head = row["HEAD_DIM"] or row["HIDDEN_SIZE"] // row["NUM_ATTENTION_HEADS"]
    assert token is not None
    assert token * cards == 2 * row["NUM_HIDDEN_LAYERS"] * head * row["NUM_KEY_VALUE_HEADS"] * 2


def test_more_tokens_a_step_leave_more_free() -> None:
    model = model_of(CASES[0]["row"])
    few, many = (gaudi_memory.need_of(model, 1, tokens) for tokens in (2048, 16384))
    assert few.free_gib == 9 and 9 < many.free_gib < 12


def test_a_model_outside_the_table_is_assumed_and_says_so() -> None:
    need = gaudi_memory.need_of(Model("m", "mine"), 1, 2048)
    assert (need.known, need.free_gib) == (False, 8)
    model = Model(
        "/m/mine",
        "mine",
        "config.json",
        "LlamaForCausalLM",
        weight_bytes=30 << 30,
        dtype="bfloat16",
    )
    model = Model(
        **{
            **vars(model),
            "layers": 32,
            "kv_heads": 8,
            "heads": 32,
            "head_dim": 128,
            "hidden_size": 4096,
        }
    )
    made = make_plan(Request(model=model.path), HOSTS["GAUDI2"], model, find("vllm-gaudi"))
    found = next(s for s in made.settings if s.name == "--gpu-memory-utilization")
    assert (found.value, found.reason.id) == ("0.87", "gaudi.utilization_assumed")
    reserved = next(s for s in made.settings if s.name == "VLLM_GRAPH_RESERVED_MEM")
    assert (reserved.value, reserved.sent) == ("0.1", False)


def test_a_share_that_leaves_less_than_the_need_says_so() -> None:
    model = Model(
        "/m/mine", "mine", "config.json", "LlamaForCausalLM", weight_bytes=86 << 30,
        dtype="bfloat16", layers=32, attention_layers=32, kv_heads=8, heads=32, head_dim=128,
        hidden_size=4096, intermediate_size=14336,
    )  # fmt: skip
    request = Request(model=model.path, cards=1, max_model_len=2048, force=True)
    made = make_plan(request, HOSTS["GAUDI2"], model, find("vllm-gaudi"))
    found = next(s for s in made.settings if s.name == "--gpu-memory-utilization")
    left = 0.9 * (made.memory["card"] - made.memory["weights"])
    expected = message("gaudi.utilization_least", free=f"{left:.1f}", needed="8.0")
    assert (found.value, found.reason) == ("0.1", expected)
    assert left < 8


QWEN_32B = Model(
    "m",
    "QwQ-32B",
    model_type="qwen2",
    layers=64,
    hidden_size=5120,
    intermediate_size=27648,
    heads=40,
    kv_heads=8,
)


@pytest.mark.parametrize("name", ["QwQ-32B", "DeepSeek-R1-Distill-Qwen-32B", "my-own-copy"])
def test_a_model_of_the_same_build_needs_what_its_twin_needs(name: str) -> None:
    twin = gaudi_memory.need_of(replace(QWEN_32B, name="Qwen2.5-32B-Instruct"), 1, 2048)
    assert gaudi_memory.need_of(replace(QWEN_32B, name=name), 1, 2048) == twin
    assert twin.free_gib == 16
    assert not gaudi_memory.need_of(replace(QWEN_32B, name=name, layers=63), 1, 2048).known
