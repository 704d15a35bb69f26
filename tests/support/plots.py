"""Helpers of the tests of pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from gaudi_launch.core.base import plotting

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib (extra plot) is not installed"
)


class NotedAxis:
    """An axis that notes what is drawn: name, values, style."""

    yaxis = "y"

    def __init__(self) -> None:
        self.drawn: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def draw(*values: Any, **style: Any) -> None:
            self.drawn.append((name, values, style))

        return draw


def noted_sheet(
    monkeypatch: pytest.MonkeyPatch, title: str, inches: tuple[int, int]
) -> tuple[NotedAxis, NotedAxis]:
    """Replace the library of pictures by two axes, with messages as their ids."""
    made = NotedAxis(), NotedAxis()

    @contextmanager
    def sheet(shown: str, *, rows: int, size: tuple[int, int]) -> Iterator[Any]:
        assert (shown, rows, size) == (title, 2, inches)
        yield SimpleNamespace(axes=made)

    monkeypatch.setattr(plotting, "sheet", sheet)
    monkeypatch.setattr(plotting, "rendered", lambda figure, ending: ending.encode())
    monkeypatch.setattr(
        plotting, "dress", lambda axis, *words: axis.drawn.append(("dress", *words))
    )
    monkeypatch.setattr(plotting, "label", lambda id, **values: (id, values))
    monkeypatch.setattr(plotting, "plain_numbers", lambda axis: None)
    return made


def texts(svg: bytes) -> list[str]:
    """Return every text of an SVG, in order."""
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG in pixels."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
