"""Line charts: as SVG, as PNG, in letters."""

import struct
import zlib
from xml.etree import ElementTree

import pytest

from lakehouse.report.chart import HEIGHT, WIDTH, Line, Series, chart_shapes, line_chart, text_chart, tick_step
from lakehouse.report.png import png_picture

TWO = (Series(name="a <b>", points=[(0, 0), (5, 50), (10, 0)]), Series(name="c", points=[(0, 20), (10, 20)]))


def test_the_svg_has_a_line_per_series_its_names_and_a_tick_per_mark() -> None:
    root = ElementTree.fromstring(line_chart("T & U", TWO, [5], x_name="version", y_name="files"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"T & U", "a <b>", "c", "version", "files", "0", "50", "10"} <= set(texts)
    lines = [element.get("points", "").split() for element in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(points) for points in lines[-2:]] == [3, 2]
    assert lines[-2][0].split(",")[0] == lines[-1][0].split(",")[0]


@pytest.mark.parametrize("series", [(), (Series(name="one", points=[(3, 7)]),), (Series(name="none", points=[]),), TWO])
def test_every_shape_lies_inside_the_picture(series: tuple[Series, ...]) -> None:
    shapes = list(chart_shapes("t", series))
    points = [point for shape in shapes for point in (shape.points if isinstance(shape, Line) else (shape.at,))]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_the_png_is_whole_and_shows_the_line_in_its_colour() -> None:
    data = png_picture([Line(points=((10, 10), (20, 10)), colour="#0072b2", width=2)])
    chunks, place = {}, 8
    while place < len(data):
        (length,), kind = struct.unpack(">I", data[place : place + 4]), data[place + 4 : place + 8]
        chunks[kind] = data[place + 8 : place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + chunks[kind]),)
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (1 + 3 * width)

    def pixel(x: int, y: int) -> str:
        start = y * (1 + 3 * width) + 1 + 3 * x
        return rows[start : start + 3].hex()

    assert (pixel(30, 20), pixel(30, 40), pixel(60, 20)) == ("0072b2", "ffffff", "ffffff")


def test_in_letters_the_first_series_is_on_top_and_everything_is_named() -> None:
    assert text_chart(TWO, width=8, height=3) == ["50 | *", "   |o o", " 0 |* *", "   +---", "    0 10", "    * a <b>   o c"]


@pytest.mark.parametrize(("most", "step"), [(0, 2e-10), (1, 0.2), (7, 2), (50, 10), (51, 20), (1_000_000, 200_000)])
def test_ticks_are_round(most: float, step: float) -> None:
    assert tick_step(most) == pytest.approx(step)
