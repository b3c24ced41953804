"""Line charts as SVG, as PNG and in letters; bars as PNG."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from lakehouse.report.chart import (
    Bar,
    Labels,
    Series,
    StackedBar,
    bar_chart,
    line_chart,
    stacked_bar_chart,
    text_chart,
)

TWO = (
    Series(name="a <b>", points=[(0, 0), (5, 50), (10, 0)]),
    Series(name="$c$", points=[(0, 20), (10, 20)]),
)


def colours_of(png: bytes) -> dict[str, int]:
    """How many pixels have each colour."""
    picture = Image.open(BytesIO(png)).convert("RGBA")
    return {
        bytes(colour[:3]).hex(): count
        for count, colour in picture.getcolors(picture.width * picture.height) or []
    }  # type: ignore[index]


def test_the_svg_has_a_line_per_series_and_names_everything_as_it_is() -> None:
    root = ElementTree.fromstring(
        line_chart(Labels(title="T & U", x="version", y="files"), TWO, [5], file_format="svg")
    )
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"T & U", "a <b>", "$c$", "version", "files", "0", "50", "10"} <= set(texts)
    paths = [
        (path.get("d", ""), path.get("style", ""))
        for path in root.iter("{http://www.w3.org/2000/svg}path")
    ]
    assert [
        next(d.count("L") for d, style in paths if colour in style)
        for colour in ("#0072b2", "#e69f00")
    ] == [2, 1]


@pytest.mark.parametrize(
    "series", [(), (Series(name="one", points=[(3, 7)]),), (Series(name="none", points=[]),), TWO]
)
def test_the_png_of_any_lines_is_sharp_and_small(series: tuple[Series, ...]) -> None:
    data = line_chart(Labels(title="t", x="x", y="y"), series, file_format="png")
    assert Image.open(BytesIO(data)).size == (1920, 840) and len(data) < 100_000


def test_the_bars_are_as_high_as_their_counts_in_few_enough_bytes_for_every_event() -> None:
    data = bar_chart([Bar("<16 KiB", 10, True), Bar("<64 KiB", 5, False), Bar("<1 MiB", 0, False)])
    colours = colours_of(data)
    assert colours["e0913a"] / colours["4f7cd6"] == pytest.approx(2, rel=0.1) and len(data) < 2_000
    data = stacked_bar_chart(
        ["live", "old"],
        [
            StackedBar("$a$", {"live": 30, "old": 10}, "40"),
            StackedBar("\u65e5", {"live": 10}, "10"),
        ],
    )
    colours = colours_of(data)
    assert colours["0072b2"] / colours["e69f00"] == pytest.approx(4, rel=0.2) and len(data) < 4_000


def test_a_picture_needs_no_home_that_can_be_written_to(tmp_path: Path) -> None:
    code = "from lakehouse.report.chart import bar_chart; bar_chart([])"
    environ = {
        **os.environ,
        "HOME": "/nowhere",
        "MPLCONFIGDIR": str(Path(__file__) / "no folder"),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_in_letters_the_first_series_is_on_top_and_everything_is_named() -> None:
    assert text_chart(TWO, width=8, height=3) == [
        "50 | *",
        "   |o o",
        " 0 |* *",
        "   +---",
        "    0 10",
        "    * a <b>   o $c$",
    ]
