"""Steps from what runs to what a file describes: beside the old ones, or in their place."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.stack.changes import (
    ChangeCase,
    ChangeStep,
    RunningEngine,
    steps_of,
)
from gaudi_launch.extensions.stack.division import CardShare


def refused(model: str, error: LaunchError) -> LaunchError:
    return LaunchError(f"{model}: {error.id}", ExitCode.MACHINE)


def steps(
    running: tuple[RunningEngine, ...],
    new: tuple[CardShare, ...],
    *,
    groups: tuple[tuple[str, ...], ...] = (("a", "b"),),
    machine: str = "simulated:hls2",
) -> Any:
    """Return the steps on a machine where the cards of what runs are busy."""
    busy = ",".join(str(module) for each in running for module in each.modules)
    host = load(f"{machine}+busy={busy}" if busy else machine)
    return steps_of(ChangeCase(host, groups, running, new), refused)


def old(name: str, model: str, *modules: int) -> RunningEngine:
    return RunningEngine(name, model, modules, "old")


def new(name: str, model: str, cards: int, modules: tuple[int, ...] | None = None) -> CardShare:
    return CardShare(cards, modules, name, model)


def test_as_many_as_fit_start_at_once_and_take_the_place_of_as_many() -> None:
    running = (old("a", "a", 0, 1), old("a-2", "a", 2, 3), old("a-3", "a", 4, 5))
    got, _ = steps(running, (new("n1", "a", 2), new("n2", "a", 2), new("n3", "a", 2)))
    assert got == (
        ChangeStep(models=("a",), starts=("n1",), ends_after=("a",)),
        ChangeStep(models=("a",), starts=("n2",), ends_after=("a-2",)),
        ChangeStep(models=("a",), starts=("n3",), ends_after=("a-3",)),
    )


def test_old_ones_beside_their_new_version_end_when_it_answers() -> None:
    got, _ = steps((old("a", "a", 0), RunningEngine("a.v2", "a", (1,))), ())
    assert got == (ChangeStep(models=("a",), ends_after=("a",)),)


def test_a_new_version_on_chosen_modules_takes_their_place() -> None:
    got, _ = steps((old("a", "a", 3),), (new("a.v2", "a", 1, (3,)),))
    assert got == (
        ChangeStep(models=("a",), ends_first=("a",), starts=("a.v2",), interrupted=("a",)),
    )


def test_a_model_that_fits_nowhere_is_named_and_nothing_else_ends_for_it() -> None:
    with pytest.raises(LaunchError) as raised:
        steps((RunningEngine("a", "a", (0, 1, 2, 3, 4, 5)),), (new("b", "b", 4),))
    assert raised.value.id == "b: placement.too_few"


def test_nothing_to_change_has_no_steps() -> None:
    assert steps((RunningEngine("a", "a", (0,)),), ()) == ((), {})
