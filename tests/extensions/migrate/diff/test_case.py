"""What changes between two engine versions, as the use case returns it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.engines.version_facts import names_of, renames
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.migrate.diff.case import EnginesDiff, NamesDiff, engines_diff
from tests.support.refusals import failing

NO_PLAN = LaunchOptions()
QWEN = LaunchOptions(model="Qwen/Qwen3-8B", cards=1, machine="simulated:hls2")


def removed(found: EnginesDiff) -> dict[str, tuple[str, bool]]:
    names = found.options
    return {each.name: (each.instead, each.name in names.used) for each in names.removed}


def test_without_a_model_only_names_are_compared() -> None:
    found = engines_diff("vllm-fork@1.22", "vllm-gaudi@0.26", NO_PLAN)
    assert (found.left.label, found.right.label, found.plans) == (
        "vllm-fork@1.22",
        "vllm-gaudi@0.26.0",
        None,
    )
    assert removed(found)["--max-num-prefill-seqs"] == ("VLLM_PROMPT_BS_BUCKET_MAX", False)
    assert removed(found)["--swap-space"] == ("", False)
    changed = {each.name: (each.left, each.right) for each in found.options.changed}
    assert changed["--gpu-memory-utilization"] == ("0.9", "0.92")
    # both are expressions, which say nothing
    assert "--limit-mm-per-prompt" not in changed
    assert "--runner" in found.options.added
    assert found.variables is not None
    assert "VLLM_DELAYED_SAMPLING" in {each.name for each in found.variables.removed}
    # upstream reads it for every hardware, so it is not missing
    assert "VLLM_LOGGING_LEVEL" not in {each.name for each in found.variables.removed}


def test_the_same_version_has_no_difference() -> None:
    found = engines_diff("vllm-gaudi@0.26", "vllm-gaudi@0.26.0", QWEN)
    assert (found.options, found.variables) == (NamesDiff((), (), ()), NamesDiff((), (), ()))
    assert found.plans is not None and found.plans.settings == ()


def test_a_plan_names_what_it_uses() -> None:
    options = replace(QWEN, extra=("--num-lookahead-slots=2",))
    found = engines_diff("vllm-fork@1.22", "vllm-gaudi@0.26", options)
    assert removed(found)["--num-lookahead-slots"] == ("", True)
    assert removed(found)["--max-num-prefill-seqs"][1] is True
    assert removed(found)["--swap-space"][1] is False
    assert found.plans is not None and found.plans.right.refused is not None
    assert found.plans.right.refused.id == "options.refused"
    plans = engines_diff("vllm-fork@1.22", "vllm-gaudi@0.26", QWEN).plans
    assert plans is not None
    settings = {each.name: (each.left, each.right) for each in plans.settings}
    assert settings["PT_HPU_LAZY_MODE"] == ("1", "0")
    assert settings["--max-num-prefill-seqs"] == ("1", None)
    # spelled with underscores by the fork, with hyphens by the plugin
    assert "--tensor-parallel-size" not in settings


def test_an_image_has_no_list_of_names() -> None:
    found = engines_diff("tgi@3.3.5", "vllm-gaudi@0.26", QWEN)
    assert (found.left.label, found.options, found.variables) == (
        "tgi@3.3.5",
        NamesDiff((), (), ()),
        None,
    )
    assert found.plans is not None and found.plans.left.plan is not None
    assert found.plans.caches == ()


HYBRID = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "intermediate_size": 5120, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_value_heads": 32, "vocab_size": 151936, "max_position_embeddings": 8192,
}  # fmt: skip


def test_the_cache_of_layers_is_shown_where_it_differs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HYBRID), encoding="utf-8")
    hybrid = replace(QWEN, model=str(tmp_path))
    found = engines_diff("vllm-fork@1.22", "vllm-gaudi@0.26", hybrid)
    assert found.plans is not None
    caches = [
        (each.kind, each.left and each.left.allocates, each.right and each.right.allocates)
        for each in found.plans.caches
    ]
    assert caches == [("state", "model", "state")]


def test_a_refusal_is_an_answer() -> None:
    options = replace(QWEN, scheduler_steps=8)
    found = engines_diff("vllm-fork@1.21", "vllm-gaudi@0.26", options)
    assert found.plans is not None
    assert found.plans.left.refused is None
    assert (
        found.plans.right.refused is not None and found.plans.right.refused.id == "gaudi.no_option"
    )
    assert found.plans.settings == ()


@pytest.mark.parametrize(
    ("left", "right", "options", "expected"),
    [
        ("vllm-gaudi@0.24", "vllm-gaudi@0.26", NO_PLAN, {"gdn_graph_compile", "gdn_warmup_memory"}),
        ("vllm-gaudi@0.24", "vllm-gaudi@0.26", QWEN, set()),
        ("vllm-gaudi@0.21", "vllm-gaudi@0.26", QWEN, {"fastapi_routes"}),
    ],
)
def test_problems_concern_the_versions_and_the_plan(
    left: str, right: str, options: LaunchOptions, expected: set[str]
) -> None:
    found = {
        each.problem.id: (each.in_left, each.in_right)
        for each in engines_diff(left, right, options).problems
    }
    assert expected <= set(found)
    if options is QWEN:
        assert set(found) == expected
    assert found.get("gdn_graph_compile", (False, True)) == (False, True)


@pytest.mark.parametrize("name", ["vllm-gaudy@0.26", "tgi@9.9"])
def test_a_version_without_facts_is_refused(name: str) -> None:
    with failing("support.unknown_version", ExitCode.USAGE):
        engines_diff(name, "vllm-gaudi@0.26", NO_PLAN)


def test_an_incomplete_version_compares_its_own_variables() -> None:
    found = engines_diff("vllm-gaudi@0.26", "vllm-gaudi@main", NO_PLAN)
    assert found.options == NamesDiff((), (), ())
    assert found.variables is not None
    assert "VLLM_COMPACT_GDN" not in {each.name for each in found.variables.removed}


def test_renames_name_what_there_is() -> None:
    known: set[str] = set()
    for version in versions():
        known |= set(names_of(version).options) | set(names_of(version).variables)
    assert set(renames()) <= known
