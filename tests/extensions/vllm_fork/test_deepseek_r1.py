"""deepseek_r1 over several hosts: what the two-node guide changes."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.engine import Spread
from gaudi_launch.core.planning.plan import Kind, Setting
from gaudi_launch.extensions.vllm_fork.deepseek_r1 import GUIDE, DeepSeekFork

WHY = message("cluster.why_two_nodes")
EXPERTS = Setting(
    "VLLM_EP_SIZE", "16", "env", "computed", message("cluster.why_experts", cards=16), GUIDE
)


def changed(name: str, value: str, kind: Kind = "env") -> Setting:
    return Setting(name, value, kind, "computed", WHY, GUIDE)


SPANNING = (
    EXPERTS,
    changed("VLLM_GRAPH_RESERVED_MEM", "0.2"),
    changed("--gpu_memory_utilization", "0.9", "option"),
    changed("--num-scheduler-steps", "1", "option"),
)
AUTO = changed("--kv-cache-dtype", "auto", "option")
FILES = (
    changed("QUANT_CONFIG", "/fork/scripts/quant_configs/inc_quant_per_channel_bf16kv.json"),
    changed("INC_MEASUREMENT_DUMP_PATH_PREFIX", "/fork"),
)


def of(*settings: tuple[str, str], ray: bool = True, own: str = "", **more: Any) -> list[Setting]:
    made = [Setting(name, value, "env", "computed", WHY) for name, value in settings]
    return [*DeepSeekFork().spread(Spread(made, 16, ray, frozenset(own.split()), **more))]


def test_experts_are_over_all_cards_and_an_engine_of_one_host_keeps_the_rest() -> None:
    assert of(("VLLM_REQUANT_FP8_INC", "1"), ray=False, source="/fork") == [EXPERTS]


def test_an_engine_that_spans_hosts_has_the_values_of_the_guides_script() -> None:
    assert of() == [*SPANNING, AUTO]
    # the plan has read the file
    assert of(measured=True) == [*SPANNING]


@pytest.mark.parametrize(
    ("file", "own", "more"),
    [
        ("/x/fp8kv.json", "QUANT_CONFIG", ()),
        ("/x/bf16kv.json", "QUANT_CONFIG", (AUTO,)),
        # not the user's: the guide's file takes its place
        ("/x/fp8kv.json", "", (AUTO,)),
    ],
)
def test_the_cache_follows_the_users_file(file: str, own: str, more: tuple[Setting, ...]) -> None:
    assert of(("QUANT_CONFIG", file), own=own) == [*SPANNING, *more]


def test_inc_reads_the_files_of_the_checkout_on_each_host() -> None:
    inc = ("VLLM_REQUANT_FP8_INC", "1")
    assert of(inc, source="/fork") == [*SPANNING, AUTO, *FILES]
    assert of(inc) == [*SPANNING, AUTO]
    # of two settings the first counts
    assert of(("VLLM_REQUANT_FP8_INC", "0"), inc, source="/fork") == [*SPANNING, AUTO]
    assert of(source="/fork") == [*SPANNING, AUTO]
