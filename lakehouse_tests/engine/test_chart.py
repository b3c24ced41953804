"""A chart says the same in text and as a picture, and breaks on nothing."""

from xml.etree import ElementTree

import pytest

from lakehouse.engine.chart import Chart, Series

POINTS = [(0, 1), (10, 5), (20, 1)]


def chart(*series: Series, marks: tuple[float, ...] = ()) -> Chart:
    return Chart(title="files & bytes <now>", x_name="version", y_name="files", series=series, marks=marks, marked="compactions")


def test_the_text_steps_up_and_down_and_marks_what_it_is_told_to() -> None:
    text = chart(Series(name="files", points=POINTS), marks=(20,)).as_text(width=26, height=5)
    assert text.splitlines() == [
        "files & bytes <now>",
        "  5 |          ***********",
        "    |          *         *",
        "2.5 |          *         *",
        "    |***********         *",
        "  0 |",
        "    +---------------------",
        "                         ^",
        "     version 0          20",
        "     * files   ^ compactions",
    ]


def test_the_picture_has_a_line_for_each_series_and_every_mark() -> None:
    shown = chart(Series(name="ours", points=POINTS), Series(name="theirs", points=POINTS), marks=(3, 20))
    root = ElementTree.fromstring(shown.as_svg())
    tags = [element.tag.rpartition("}")[2] for element in root]
    assert tags.count("path") == 2 and tags.count("line") == 5 + 2
    assert "files & bytes <now>" in [element.text for element in root]


@pytest.mark.parametrize("points", [[], [(3, 0)], [(3, 7)], [(0, 0), (5, 0)], [(0, 2_000_000), (1, 3e9)]])
def test_no_series_is_too_poor(points: list[tuple[float, float]]) -> None:
    shown = chart(Series(name="x", points=points), marks=(3,))
    assert ElementTree.fromstring(shown.as_svg()) is not None
    assert all(len(line) <= 80 for line in shown.as_text(width=80).splitlines())
