"""Draw rectangles, lines and plain text as SVG, or as PNG with zlib alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Color = tuple[int, int, int]
# a line of text: x, y of its bottom left, and the text
Words = tuple[float, float, str]
WHITE: Color = (255, 255, 255)
INK: Color = (60, 60, 60)


@dataclass(frozen=True)
class Rectangle:
    """A filled rectangle, in pixels from the top left."""

    x: float
    y: float
    width: float
    height: float
    color: Color


def png(width: int, height: int, boxes: Iterable[Rectangle]) -> bytes:
    """Return the boxes, painted in order on white, as PNG (8-bit RGB)."""
    rows = [bytearray(bytes(WHITE) * width) for _ in range(height)]
    for box in boxes:
        left, right = max(0, round(box.x)), min(width, round(box.x + box.width))
        for y in range(max(0, round(box.y)), min(height, round(box.y + box.height))):
            rows[y][3 * left : 3 * right] = bytes(box.color) * max(0, right - left)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def svg(width: int, height: int, boxes: Iterable[Rectangle], texts: Iterable[Words]) -> str:
    """Return the boxes, and texts whose bottom left is at (x, y), as SVG."""
    from xml.sax.saxutils import escape

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for box in boxes:
        color = "#{:02x}{:02x}{:02x}".format(*box.color)
        place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        lines.append(f'<rect {place} fill="{color}"/>')
    for x, y, text in texts:
        lines.append(f'<text x="{x:g}" y="{y:g}" font-size="14">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


# letters of 3 by 5 dots: one octal digit per row, from the top
_FONT = """
0=75557 1=26227 2=71747 3=71717 4=55711 5=74717 6=74757 7=71122 8=75757 9=75717 A=25755 B=65656 C=34443 D=65556
E=74647 F=74644 G=34553 H=55755 I=72227 J=11152 K=55655 L=44447 M=57755 N=65555 O=25552 P=65644 Q=25563 R=65655
S=34216 T=72222 U=55557 V=55552 W=55775 X=55255 Y=55222 Z=71247 .=00002 ,=00024 :=02020 -=00700 %=51245 /=11244
(=12221 )=42224 +=02720 _=00007
"""
_LETTERS = {pair[0]: pair[2:] for pair in _FONT.split()}
LETTER_WIDTH = 4


def words(text: str, x: float, y: float, scale: int = 2, color: Color = INK) -> list[Rectangle]:
    """Return a line of small capitals whose top left is at (x, y).

    Characters that the font lacks are left blank. Each letter is ``LETTER_WIDTH * scale`` wide and
    ``5 * scale`` high.
    """
    boxes = []
    for place, letter in enumerate(text.upper()):
        for row, digit in enumerate(_LETTERS.get(letter, "")):
            for column in range(3):
                if int(digit, 8) >> (2 - column) & 1:
                    left = x + (place * LETTER_WIDTH + column) * scale
                    boxes.append(Rectangle(left, y + row * scale, scale, scale, color))
    return boxes


def written(lines: Iterable[Words]) -> list[Rectangle]:
    """Return lines of text for a PNG, where `svg` would write them."""
    return [dot for x, bottom, text in lines for dot in words(text, x, bottom - 10)]


def steps(points: Sequence[tuple[float, float]], color: Color, thick: float = 2.0) -> list[Rectangle]:
    """Return a staircase through the points (ascending x): along, then up or down."""
    boxes = []
    for (x, y), (next_x, next_y) in pairwise(points):
        boxes.append(Rectangle(x, y - thick / 2, next_x - x + thick / 2, thick, color))
        top = min(y, next_y) - thick / 2
        boxes.append(Rectangle(next_x - thick / 2, top, thick, abs(next_y - y) + thick, color))
    return boxes
