"""Values as a row of characters."""

from __future__ import annotations

from gaudi_launch.cli.sparkline import sparkline


def test_unknown_values_are_blank_and_zeros_are_not() -> None:
    assert sparkline([None, 0, None], 3, 100) == " ▁ "
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline([], 2) == "  "


def test_without_a_most_the_largest_value_is_full() -> None:
    assert sparkline([1, 2, 4], 3) == "▃▅█"
    assert sparkline([200, -5], 2, 100) == "█▁"
    assert sparkline([1], 0) == ""
