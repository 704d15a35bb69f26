"""The steps before a start, from facts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.launch.setup_steps import SPARE_BYTES, Room, SetupFacts, needed_bytes, steps

MODEL, G2 = Path("/data/R1"), Path("/data/R1-G2")
BARE = SetupFacts(
    model="me/R1",
    repo="me/R1",
    target=MODEL,
    weight_bytes=700 * 10**9,
    converts=True,
    converted_target=G2,
    measurements="you/measured",
    measurements_target=Path("/data/m"),
    engine="deepseek_r1",
    disk_bytes=1500 * 10**9,
)


def states(facts: SetupFacts) -> list[tuple[str, bool]]:
    return [(step.name, step.done) for step in steps(facts)]


@pytest.mark.parametrize(
    ("change", "done", "final"),
    [
        ({}, (False, False, False, True), G2),
        ({"folder": MODEL}, (True, False, False, True), G2),
        ({"folder": MODEL, "converted": True}, (True, True, False, True), G2),
        # the source may be removed once it is converted
        ({"converted": True, "measured": True}, (True, True, True, True), G2),
        ({"installed": False}, (False, False, False, False), G2),
    ],
)
def test_each_step_is_skipped_when_done(
    change: dict[str, object], done: tuple[bool, ...], final: Path
) -> None:
    facts = replace(BARE, **change)  # type: ignore[arg-type]
    assert states(facts) == list(
        zip(("pull", "convert", "measurements", "engine"), done, strict=True)
    )
    assert facts.final == final


def test_the_commands_of_the_steps() -> None:
    assert [step.command for step in steps(BARE)] == [
        ("gaudi-launch", "pull", "me/R1", "--to", "/data/R1"),
        ("gaudi-launch", "fp8", "convert", "/data/R1", "/data/R1-G2"),
        ("gaudi-launch", "pull", "you/measured", "--to", "/data/m"),
        (),
    ]


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        # the guide's 1.5 TB, larger than twice the weights
        ({}, {MODEL: 700 * 10**9 + SPARE_BYTES, G2: 800 * 10**9 - SPARE_BYTES}),
        ({"disk_bytes": None}, {MODEL: 700 * 10**9 + SPARE_BYTES, G2: 700 * 10**9 + SPARE_BYTES}),
        (
            {"there": ((MODEL, 600 * 10**9), (G2, 0))},
            {MODEL: 100 * 10**9 + SPARE_BYTES, G2: 700 * 10**9 + SPARE_BYTES},
        ),
        ({"folder": MODEL, "there": ((MODEL, 700 * 10**9),)}, {G2: 700 * 10**9 + SPARE_BYTES}),
        ({"folder": MODEL, "there": ((G2, 900 * 10**9),)}, {G2: SPARE_BYTES}),
        ({"converted": True}, {}),
        ({"weight_bytes": None}, {}),
        ({"converts": False}, {MODEL: 700 * 10**9 + SPARE_BYTES}),
    ],
)
def test_the_disk_that_is_still_needed(change: dict[str, object], needed: dict[Path, int]) -> None:
    assert needed_bytes(replace(BARE, **change)) == needed  # type: ignore[arg-type]


def words(facts: SetupFacts) -> list[Message]:
    return [step.what for step in steps(facts)]


def test_each_step_states_what_is_there_and_what_is_not() -> None:
    to_do = replace(BARE, installed=False)
    assert words(to_do) == [
        message("prepare.pull", model="me/R1", path="/data/R1", size="700"),
        message("prepare.convert", path="/data/R1-G2"),
        message("prepare.measure", repo="you/measured", path="/data/m"),
        message("prepare.no_engine", engine="deepseek_r1"),
    ]
    done = replace(BARE, folder=Path("/own"), converted=True, measured=True)
    assert words(done) == [
        message("prepare.pulled", path="/own"),
        message("prepare.converted", path="/data/R1-G2"),
        message("prepare.measured", repo="you/measured", path="/data/m"),
        message("prepare.engine", engine="deepseek_r1"),
    ]
    # the source was removed after its conversion
    removed = replace(BARE, converted=True)
    assert words(removed)[0] == message("prepare.pulled", path="/data/R1-G2")
    assert words(replace(BARE, weight_bytes=None))[0].id == "prepare.pull_unsized"
    own = replace(BARE, folder=Path("/own"))
    assert steps(own)[1].command == ("gaudi-launch", "fp8", "convert", "/own", "/data/R1-G2")


def test_the_disk_is_stated_with_its_room() -> None:
    room = Room(Path("/data"), 1500 * 10**9, 2 * 10**12)
    known = message("prepare.room", needed="1500", path="/data", free="2000")
    assert words(replace(BARE, rooms=(room,)))[0] == known
    unknown = message("prepare.room_unknown", needed="1500", path="/data")
    assert words(replace(BARE, rooms=(replace(room, free=None),)))[0] == unknown
