"""Parts of JSON that another program wrote."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.json_values import array, mapping


def test_an_object_and_an_array_are_returned_as_they_are() -> None:
    document, rows = {"a": 1}, [1, 2]
    assert mapping(document) is document
    assert array(rows) is rows


@pytest.mark.parametrize("other", [None, 1, "text", True, [("a", 1)]])
def test_anything_but_an_object_counts_as_an_empty_one(other: object) -> None:
    assert mapping(other) == {}


@pytest.mark.parametrize("other", [None, 1, "text", True, {"a": 1}])
def test_anything_but_an_array_counts_as_an_empty_one(other: object) -> None:
    assert array(other) == []
