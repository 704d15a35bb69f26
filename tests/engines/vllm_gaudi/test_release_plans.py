"""Plans for every release have only what that release reads, and the buckets that its code makes.

``scripts/acceptance/releases.py --record`` executed the releases' own bucket modules.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from gaudi_launch.buckets.engine_buckets import engine_buckets
from gaudi_launch.buckets.families import ladder_name
from gaudi_launch.buckets.ladder_rules import rules_of
from gaudi_launch.engines.support import releases, version_of
from tests.support.places import TOP
from tests.support.release_plans import KINDS, digest_of, planned, unread

EXECUTED = [each.version for each in releases("vllm-gaudi") if each.executed]
RECORDED = TOP / "tests" / "data" / "releases.json.gz"


def recorded() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return found


def test_every_release_that_is_offered_was_executed() -> None:
    assert {*recorded()} == {*EXECUTED}
    assert all(len(cases) >= 30 for cases in recorded().values())


@pytest.mark.parametrize("release", EXECUTED)
def test_the_buckets_are_those_that_the_code_of_the_release_made(release: str) -> None:
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    family = ladder_name(rules_of(facts.buckets))
    for case in recorded()[release]:
        found = engine_buckets(family, case["algorithm"], case["env"], case["args"])
        ours = [len(found.prompt), len(found.decode), digest_of(found.prompt, found.decode)]
        assert ours == [*case["graphs"], case["lists"]], case["kind"]


@pytest.mark.parametrize("release", EXECUTED)
def test_a_state_decides_the_blocks_that_buckets_count(release: str) -> None:
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    expected: list[tuple[int, int | None]] = [(128, None)] * 2
    if facts.state_blocks:
        expected = [(528, None), (768, None)]
    if release == "0.21.0":
        # its runner counts decode buckets in such blocks, prompts in those of 128
        expected = [(128, 528), (128, 768)]
    by_kind = {case["kind"]: case["args"] for case in recorded()[release]}
    found = [
        (by_kind[kind]["block_size"], by_kind[kind].get("decode_block_size"))
        for kind in ("mamba", "mamba-prefix")
    ]
    assert found == expected
    for kind in ("mamba", "mamba-prefix"):
        plan = planned(f"vllm-gaudi@{release}", KINDS[kind])
        assert not isinstance(plan, str) and plan.question is not None
        assert dict(plan.question.arguments) == by_kind[kind]


def emitted(release: str, kinds: list[str]) -> dict[str, list[str]]:
    """Return what the plans of these kinds give that the release does not have."""
    found = {}
    for kind in kinds:
        plan = planned(f"vllm-gaudi@{release}", KINDS[kind])
        if not isinstance(plan, str) and unread(plan, release):
            found[kind] = unread(plan, release)
    return found


@pytest.mark.parametrize("release", EXECUTED)
def test_some_plans_have_only_what_the_release_reads(release: str) -> None:
    at = EXECUTED.index(release)
    assert emitted(release, ["gemma", "long", [*KINDS][at]]) == {}


@pytest.mark.parametrize("release", EXECUTED)
def test_every_plan_has_only_what_the_release_reads(release: str) -> None:
    assert emitted(release, [*KINDS]) == {}
