"""Cards of one machine among several services: no card twice, groups and nodes kept."""

from __future__ import annotations

from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.machine import load
from gaudi_launch.extensions.stack.division import CardShare, divide, placing_order


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
