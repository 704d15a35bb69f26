"""The picture of latency against load."""

from __future__ import annotations

import struct
import zlib
from xml.etree import ElementTree

from gaudi_launch.capacity.latency_chart import column_of, number, panels, png, svg
from gaudi_launch.capacity.search import Curve, LoadPoint

CURVE = Curve(
    tuple(LoadPoint(float(at), at / 10, 0.1 * at, 0.001 * at * at, 1.0, 1.0) for at in range(1, 10)), 10.0, 0.0
)


def test_panels_hold_every_column_and_the_target() -> None:
    ttft, tpot = panels(CURVE, 2.0, None, 17)
    assert (len(ttft.values), ttft.target, tpot.target) == (17, 2.0, None)
    assert ttft.values[0] == 0.1 and ttft.values[-1] == 0.9
    assert 0 < ttft.height(0.1) < ttft.height(2.0) < 1
    assert [column_of(CURVE, rate, 17) for rate in (0.0, 1.0, 5.0, 9.0, 99.0)] == [0, 0, 8, 16, 16]


def pixels(data: bytes) -> tuple[int, int, list[bytes]]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    rows = zlib.decompress(data[start + 4 : start + 4 + length])
    line = 3 * width + 1
    return width, height, [rows[at * line + 1 : (at + 1) * line] for at in range(height)]


def test_png_shows_curve_targets_and_words() -> None:
    width, height, rows = pixels(png(CURVE, 0.5, 0.05, 4.0))
    colors = {row[3 * x : 3 * x + 3] for row in rows for x in range(width)}
    assert {bytes((20, 80, 200)), bytes((214, 40, 40)), bytes((30, 140, 60)), bytes((60, 60, 60))} < colors
    plain = pixels(png(CURVE, None, None, None))
    assert (plain[0], plain[1]) == (width, height)
    without = {row[3 * x : 3 * x + 3] for row in plain[2] for x in range(width)}
    assert bytes((214, 40, 40)) not in without and bytes((30, 140, 60)) not in without


def test_svg_has_the_words() -> None:
    drawing = ElementTree.fromstring(svg(CURVE, 0.5, 0.05, 4.0))
    words = [element.text for element in drawing if element.tag.endswith("text")]
    assert words == ["TTFT S", "1.03", "0.087", "TPOT MS", "93.2", "0.87", "1", "REQ/S", "9"]


def test_every_figure_can_be_drawn() -> None:
    for value in (1e-7, 0.0123, 1.0, 31.04, 999.6, 12345.6, 3e9):
        low = LoadPoint(value, 0.1, value, value, 1, 1)
        high = LoadPoint(2 * value, 0.2, value, value, 1, 1)
        assert png(Curve((low, high), 1, 0), None, None, None)
        assert float(number(value)) == float(f"{value:.3g}") or value >= 1000
