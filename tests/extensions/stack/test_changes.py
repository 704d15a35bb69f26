"""Steps from what runs to what a file describes: beside the old ones, or in their place."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.stack.changes import (
    CardShare,
    ChangeCase,
    ChangeStep,
    RunningEngine,
    divide,
    placing_order,
    steps_of,
    with_cards,
)
from tests.support.refusals import raising


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
    with raising("b: placement.too_few"):
        steps((RunningEngine("a", "a", (0, 1, 2, 3, 4, 5)),), (new("b", "b", 4),))


def test_nothing_to_change_has_no_steps() -> None:
    assert steps((RunningEngine("a", "a", (0,)),), ()) == ((), {})


# --- cards of one machine among several services: no card twice, groups and nodes kept ---


def modules(
    host: Host, *shares: CardShare, visible: tuple[int, ...] | None = None
) -> list[tuple[int, ...]]:
    found = divide(host, shares, visible=visible, refused=lambda position, error: error)
    return [placement.modules for placement in found]


def test_no_card_is_in_two_sets_and_each_is_in_one_link_group() -> None:
    host = load("simulated:gaudi2e-8")
    found = modules(host, CardShare(1), CardShare(2), CardShare(4), CardShare(1))
    assert sorted(module for each in found for module in each) == list(range(8))
    four, two = set(found[2]), set(found[1])
    assert [len(group) for group in host.groups if four <= set(group)] == [4]
    assert [len(group) for group in host.groups if two <= set(group)] == [4]


def test_sets_that_must_be_in_one_group_come_before_larger_ones_that_need_not() -> None:
    host = load("simulated:gaudi2e-8")
    shares = (CardShare(3), CardShare(3), CardShare(2))
    assert placing_order(shares, host) == (2, 0, 1)
    found = modules(host, *shares)
    assert [
        sum(1 for group in host.groups if set(found[2]) & set(group)),
        len(set(sum(found, ()))),
    ] == [1, 8]


def test_chosen_modules_are_kept_and_come_first() -> None:
    host = load("simulated:hls2")
    assert modules(host, CardShare(2), CardShare(1, (1,)), CardShare(0)) == [(2, 3), (1,), ()]


def test_only_visible_and_free_cards_are_divided() -> None:
    host = load("simulated:hls2+busy=0,1")
    assert modules(host, CardShare(1), CardShare(1), visible=(0, 1, 2, 6)) == [(2,), (6,)]


def test_the_one_that_gets_none_is_named() -> None:
    host = load("simulated:hls2")

    def refused(position: int, error: LaunchError) -> LaunchError:
        return LaunchError(f"{position}", error.exit_code)

    with raising("2"):
        divide(host, (CardShare(4), CardShare(4), CardShare(1)), refused=refused)


def test_a_machine_with_all_cards_free_has_the_same_cards() -> None:
    host = load("simulated:hls2+busy=0,1")
    assert (host.free_modules, with_cards(host).free_modules) == (
        (2, 3, 4, 5, 6, 7),
        tuple(range(8)),
    )
    assert with_cards(host, busy=(2, 3)).free_modules == (4, 5, 6, 7)
