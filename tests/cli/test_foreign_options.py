"""Options that users of other tools type are answered with ours."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.cli.foreign_options import foreign_option, in_our_names, other_names
from tests.support.places import DATA

pytestmark = pytest.mark.usefixtures("plain_english")


KNOWN = ["-w", "-n", "-N", "--memory-utilization", "--machine", "--for", "--rate", "--requests"]


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("--model x", "-w x"),
        ("--model=x -tp 4", "-w x -n 4"),
        ("--tensor_parallel_size 4 --gpu-memory-utilization=0.9", "-n 4 --memory-utilization 0.9"),
        ("--accelerator gaudi2 --goal latency", "--machine gaudi2 --for latency"),
        ("--request-rate 4 --num-prompts 8", "--rate 4 --requests 8"),
        # ours, of a command without one, and an engine's
        ("-n 1 --tail 5 --daemon -- -tp 1", "-n 1 -n 5 --daemon -- -tp 1"),
    ],
)
def test_another_tools_option_that_means_the_same_is_accepted(typed: str, ours: str) -> None:
    assert in_our_names(typed.split(), KNOWN) == ours.split()


def test_every_accepted_option_is_one_ofother_names_somewhere() -> None:
    commands = json.loads((DATA / "interface/commands.json").read_text(encoding="utf-8")).values()
    options = [option for each in commands for option in each["options"].values()]
    ours = {spelling for option in options for spelling in option["spellings"]}
    assert set(other_names("same").values()) - ours == set()


def test_a_command_that_has_no_such_option_gives_no_hint() -> None:
    assert foreign_option("--gpus", {"-w", "-f"}) is None
    assert foreign_option("--something", {"-w"}) is None
