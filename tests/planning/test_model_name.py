"""Warnings for a model of which only a name is known."""

from __future__ import annotations

import pytest

from gaudi_launch.messages import Message, message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.model_name import KnownNames, name_warning, nearest_names

HUB = KnownNames(
    ("Qwen/Qwen2-72B-Instruct", "Qwen/Qwen3-8B", "meta-llama/Llama-2-7b-hf"), profile="qwen2-72b"
)


def named(asked: str, layers: int | None = 80, known: KnownNames = HUB) -> Message | None:
    return name_warning(
        asked, Model(path=asked, name=asked.rsplit("/", 1)[-1], layers=layers), known
    )


def test_a_misspelled_hub_id_gets_its_neighbour_and_the_profile_of_its_sizes() -> None:
    asked = "Qwen/Qwen2-72B-Intsruct"
    near = {"model": asked, "nearest": "Qwen/Qwen2-72B-Instruct"}
    assert named(asked) == message("plan.name_assumed_near", profile="qwen2-72b", **near)
    assert named(asked, layers=None) == message("plan.name_sizeless_near", **near)


def test_a_path_is_compared_by_its_last_part() -> None:
    assert nearest_names("/m/Qwen2-72B-Intsruct/", HUB) == ("Qwen/Qwen2-72B-Instruct",)
    assert nearest_names("qwen3-8b", HUB) == ("Qwen/Qwen3-8B",)
    # a hub ID has one slash and is compared with its maker
    assert nearest_names("Other/Qwen3-8B", HUB) == ()
    for path in ("./Qwen3-8B", "/Qwen3-8B", "~/Qwen3-8B", "a/b/Qwen3-8B"):
        assert nearest_names(path, HUB) == ("Qwen/Qwen3-8B",), path


def test_one_name_of_two_makers_names_both_and_no_more_than_two_are_named() -> None:
    known = KnownNames(("a/m-1b-base", "b/m-1b-base", "c/m-1b-base"))
    assert nearest_names("m-1b-base", known) == ("a/m-1b-base", "b/m-1b-base")
    assert named("a/m-1b-bsae", known=known) == message(
        "plan.name_assumed_near",
        model="a/m-1b-bsae",
        profile="",
        nearest="a/m-1b-base, c/m-1b-base",
    )


def test_folders_come_before_hub_ids() -> None:
    known = KnownNames(HUB.hub_ids, ("/models/Qwen3-8B",))
    assert nearest_names("/modles/Qwen3-8B", known) == ("/models/Qwen3-8B", "Qwen/Qwen3-8B")


def test_without_sizes_it_is_stated_that_they_are_unknown() -> None:
    asked = "acme/Something-Else"
    assert named(asked, layers=None) == message("plan.name_sizeless", model=asked)
    assert named(asked) == message("plan.name_assumed", model=asked, profile="qwen2-72b")


@pytest.mark.parametrize("asked", ["Qwen/Qwen2-72B-Instruct", "demo"])
def test_a_known_name_is_not_warned_of(asked: str) -> None:
    assert named(asked) is None


def test_a_folder_that_was_read_is_not_warned_of() -> None:
    assert name_warning("/m/x", Model(path="/m/x", name="x", source="config.json"), HUB) is None
