"""Helpers of the tests of pictures."""

from __future__ import annotations

from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib (extra plot) is not installed"
)


def texts(svg: bytes) -> list[str]:
    """Return every text of an SVG, in order."""
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG in pixels."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
