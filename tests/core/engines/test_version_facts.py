"""The names of a version: options, variables, replacements, known problems."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.engines.known_versions import newest
from gaudi_launch.core.engines.version_facts import (
    NameFacts,
    Renamed,
    VersionNames,
    for_gaudi,
    names_of,
    renames,
)

FORK = newest("vllm-fork")


def test_an_image_has_no_names() -> None:
    assert names_of(replace(FORK, engine="tgi")) == VersionNames({}, {})


def test_a_default_is_a_value_where_its_text_is_one() -> None:
    texts = ("3", "None", "dict", "x +", "")
    assert [NameFacts("a", text, ()).literal for text in texts] == [3, None, ..., ..., ...]


def test_a_variable_of_vllm_for_every_hardware_is_not_for_gaudi() -> None:
    def read_by(*places: str) -> bool:
        return for_gaudi(NameFacts("A", "", places))

    assert not read_by("vllm/envs.py:3")
    assert read_by("vllm/envs.py:3", "vllm/worker/hpu_worker.py:4")
    assert not read_by()


def test_a_replacement_names_its_source() -> None:
    assert renames()["--task"] == Renamed(
        "--task",
        "--runner, --convert",
        "vllm-project/vllm 0.26.0:vllm/engine/arg_utils.py has these two and no --task",
    )
