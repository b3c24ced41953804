"""A chart's shapes as a PNG, with the standard library alone.

A plotting library would bring more megabytes than the terminal has kilobytes, for one picture of straight lines and short words.
Source: the PNG specification (W3C, second edition), 5 "Datastream structure", 11.2.2 "IHDR": eight bits each of red, green, blue.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

from lakehouse.report.chart import HEIGHT, WIDTH, Line, Words, type_of_point, type_of_shape

# Pixels per unit of the picture, so that it is sharp on a dense screen.
_SCALE = 2
_INK, _PAPER = bytes.fromhex("404040"), b"\xff\xff\xff"
# Letters of five by seven dots from the space to the tilde: a byte per column, the lowest bit on top, the eighth below the line.
_FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a12231308646236495620500008070300001c2241000041221c002a1c7f1c2a08083e0808"
    "00807030000808080808000060600020100804023e5149453e00427f400072494949462141494d331814127f1027454545393c4a4949314121110907"
    "3649494936464949291e0000140000004034000000081422411414141414004122140802015909063e415d594e7c1211127c7f494949363e41414122"
    "7f4141413e7f494949417f090909013e414151737f0808087f00417f41002040413f017f081422417f404040407f021c027f7f0408107f3e4141413e"
    "7f090909063e4151215e7f09192946264949493203017f01033f4040403f1f2040201f3f4038403f631408146303047804036159494d43007f414141"
    "0204081020004141417f04020102044040404040000307080020545478407f284444383844444428384444287f385454541800087e090218a4a49c78"
    "7f0804047800447d40002040403d007f1028440000417f40007c047804787c080404783844444438fc1824241818242418fc7c080404084854545424"
    "04043f44243c4040207c1c2040201c3c4030403c44281028444c9090907c4464544c440008364100000077000000413608000201020402"
)
_LETTER_WIDTH, _LETTER_HEIGHT = 6, 7


def png_picture(shapes: Iterable[type_of_shape]) -> bytes:
    """The PNG file that shows these shapes."""
    pixels = [bytearray(_PAPER * WIDTH * _SCALE) for _ in range(HEIGHT * _SCALE)]
    for shape in shapes:
        match shape:
            case Line(points=points, colour=colour, width=width):
                for x, y in _along(points):
                    _dot(pixels, x * _SCALE, y * _SCALE, width * _SCALE, bytes.fromhex(colour[1:]))
            case Words():
                _write(pixels, shape)
    head = struct.pack(">IIBBBBB", WIDTH * _SCALE, HEIGHT * _SCALE, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _along(points: tuple[type_of_point, ...]) -> Iterator[type_of_point]:
    """Points along a line, less than a pixel apart."""
    yield from points[:1]
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(1, int(max(abs(to_x - x), abs(to_y - y)) * _SCALE))
        for step in range(1, steps + 1):
            yield x + (to_x - x) * step / steps, y + (to_y - y) * step / steps


def _dot(pixels: list[bytearray], x: float, y: float, size: int, colour: bytes) -> None:
    """A square of `size` pixels around a point; what lies outside the picture is left out."""
    left, top = round(x - size / 2), round(y - size / 2)
    for row in pixels[max(0, top) : max(0, top + size)]:
        start, end = max(0, left), min(WIDTH * _SCALE, left + size)
        if start < end:
            row[start * 3 : end * 3] = colour * (end - start)


def _write(pixels: list[bytearray], words: Words) -> None:
    dot = _SCALE * 3 // 2 if words.large else _SCALE
    wide = len(words.text) * _LETTER_WIDTH * dot
    left = words.at[0] * _SCALE - {"start": 0, "middle": wide / 2, "end": wide - dot}[words.anchor]
    top = words.at[1] * _SCALE - _LETTER_HEIGHT * dot
    for place, letter in enumerate(words.text):
        code = ord(letter) - 32
        columns = _FONT[code * 5 : code * 5 + 5] if 0 <= code < 95 else _FONT[31 * 5 : 32 * 5]  # a question mark
        for column, bits in enumerate(columns):
            for level in range(8):
                if bits >> level & 1:
                    x, y = left + (place * _LETTER_WIDTH + column + 0.5) * dot, top + (level + 0.5) * dot
                    _dot(pixels, x, y, dot, _INK)
