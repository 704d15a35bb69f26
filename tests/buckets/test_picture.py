"""Pictures that other programs can read."""

from __future__ import annotations

import struct
import zlib
from xml.etree import ElementTree

from gaudi_launch.buckets.optimiser.bucket_planner import plan
from gaudi_launch.buckets.picture import heat, png, svg
from gaudi_launch.drawing import INK
from gaudi_launch.performance.step_time import ONE_CARD_8B
from tests.support.traces import limits


def test_heat_counts_everything() -> None:
    made = plan(limits(), None)
    pairs = [(b[0], b[2]) for b in made.buckets.decode]
    grid = heat(pairs, made.aim.expectation.shapes.decode, ONE_CARD_8B.decode, 10, 40)
    assert sum(map(sum, grid.buckets)) == len(pairs)
    assert abs(sum(map(sum, grid.share)) - 1) < 1e-9
    assert (grid.batches[-1], grid.sizes[-1]) == (64, 2000)


def test_svg_and_png() -> None:
    made = plan(limits(), None)
    shapes = made.aim.expectation.shapes
    drawing = ElementTree.fromstring(svg(made.buckets, shapes, ONE_CARD_8B, ("a < b", "c")))
    words = [element.text for element in drawing if element.tag.endswith("text")]
    # each panel's title, then the ends of its axes: requests at once, tokens or blocks
    assert words[0] == "a < b" and words[5] == "c"
    assert words[6:] == ["64", "1", "1", "2000"]
    data = png(made.buckets, shapes, ONE_CARD_8B)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    rows = zlib.decompress(data[start + 4 : start + 4 + length])
    assert len(rows) == height * (3 * width + 1)
    assert len(set(rows)) > 10
    # letters stand in the margins, where nothing else is drawn
    lines = [rows[start : start + 3 * width + 1] for start in range(0, len(rows), 3 * width + 1)]
    inked = [at for at, line in enumerate(lines) if bytes(INK) in line]
    assert inked[0] < 40 and inked[-1] > height - 45
