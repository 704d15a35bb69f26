"""LoRA, speculation, the NIXL split, chunking and image buckets: each version's answer, and
plans that ask."""

from __future__ import annotations

import pytest

from gaudi_launch.engines.features import answers, features
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.support import versions
from gaudi_launch.errors import ExitCode
from gaudi_launch.host import simulated
from gaudi_launch.messages import catalogue, message
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.refusals import failing

NAME = "Qwen/Qwen3-8B"


def warned(engine: str, *extra: str, force: bool = False, **exported: str) -> list[str]:
    request = Request(NAME, extra=extra, environment=exported, force=force)
    plan = make_plan(request, simulated.make("hls2"), known_model(NAME, False), find(engine))
    return [each.id for each in plan.warnings if each.id.startswith("features.")]


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        (
            "vllm-gaudi",
            "0.26.0",
            "supported limited limited limited limited limited supported supported limited no",
        ),
        (
            "vllm-gaudi",
            "0.15.1",
            "supported limited limited no limited limited no supported limited no",
        ),
        (
            "vllm-gaudi",
            "0.10.0",
            "unknown unknown unknown unknown unknown unknown no unknown no no",
        ),
        (
            "vllm-gaudi",
            "main",
            "supported limited limited limited limited limited supported supported limited no",
        ),
        (
            "vllm-fork",
            "1.21",
            "supported limited no unknown unknown unknown no supported no limited",
        ),
        (
            "vllm-fork",
            "1.22",
            "supported limited limited unknown unknown unknown no supported no limited",
        ),
        (
            "vllm-fork",
            "deepseek_r1",
            "supported limited unknown unknown unknown unknown no no no no",
        ),
    ],
)
def test_each_version_answers(engine: str, version: str, expected: str) -> None:
    assert [each.status for each in answers(engine, version, "x")] == expected.split()


def test_an_answer_names_the_engine_also_where_nothing_is_known() -> None:
    found = answers("vllm-gaudi", "0.10.0", "vllm-gaudi@0.10.0")
    for each in found:
        id = "features.unknown"
        if each.status != "unknown":
            id = f"features.{each.id}_{each.status}"
        assert each.sentence == message(id, engine="vllm-gaudi@0.10.0")


def test_every_answer_has_a_sentence_and_a_source() -> None:
    for version in versions():
        for each in answers(version.engine, version.version, version.label):
            assert each.sentence.id in catalogue("en")
            assert bool(each.source) is (each.status != "unknown")
    assert {row.engine for feature in features() for row in feature.rows} <= {
        each.engine for each in versions()
    }


def test_a_plan_says_how_a_feature_is_limited_and_nothing_of_a_supported_one() -> None:
    assert warned("vllm-gaudi@0.26", "--enable-lora") == []
    speculative = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    assert warned("vllm-gaudi@0.26", *speculative) == ["features.speculative_limited"]
    assert warned("vllm-gaudi@0.16", VLLM_ROW_PARALLEL_CHUNKS="8") == ["features.row_parallel_no"]
    assert warned("vllm-gaudi@0.26", VLLM_ROW_PARALLEL_CHUNKS="8") == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NixlConnector", ["features.disaggregated_limited"]),
        ("OffloadingConnector", ["features.offloading_limited"]),
        ("LMCacheConnectorV1", ["features.other_connector_limited"]),
    ],
)
def test_the_sentence_about_an_option_follows_its_value(value: str, expected: list[str]) -> None:
    connector = ("--kv-transfer-config", f'{{"kv_connector": "{value}", "kv_role": "kv_both"}}')
    assert warned("vllm-gaudi@0.26", *connector) == expected


def test_an_option_whose_feature_is_missing_is_refused_and_forced() -> None:
    with failing("features.refused", ExitCode.USAGE):
        warned("vllm-fork@1.21", "--kv-transfer-config", "{}")
    forced = warned("vllm-fork@1.21", "--kv-transfer-config", "{}", force=True)
    assert forced == ["features.disaggregated_no"]
