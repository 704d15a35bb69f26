"""CPU lists as the kernel writes them."""

from __future__ import annotations

import pytest

from gaudi_launch.host.cpus import format_cpus, parse_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("0", (0,)),
        ("7-7", (7,)),
        ("0-2,8,5-6\n", (0, 1, 2, 5, 6, 8)),
        (" 3 , 1-2 2", (1, 2, 3)),
        ("2-1", ()),
        ("x,1-x,-3,4-,5,²", (5,)),
        ("0-99999,", tuple(range(100_000))),
        # a damaged file must not fill the memory
        ("0-100000,3", (3,)),
    ],
)
def test_a_kernel_list_is_read(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        ((), ""),
        ((0,), "0"),
        ((4, 0, 1, 1), "0-1,4"),
        ((0, 2, 3, 4, 6), "0,2-4,6"),
        ((1, 2, 5, 6), "1-2,5-6"),
        (range(3, 80), "3-79"),
    ],
)
def test_the_shortest_list_is_written(cpus: tuple[int, ...], text: str) -> None:
    assert format_cpus(cpus) == text
