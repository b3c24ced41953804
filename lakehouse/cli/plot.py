"""`--plot FILE`: files over versions as a picture."""

from collections.abc import Sequence
from pathlib import Path

from lakehouse.core.errors import Refused
from lakehouse.report.chart import Series, chart_shapes, line_chart
from lakehouse.report.png import png_picture


def check_plot(plot: Path) -> None:
    """Refuses a file that no picture can be written to, before any work is done for it."""
    if plot.suffix not in (".png", ".svg"):
        raise Refused(f"--plot {plot} ends in {plot.suffix or 'nothing'}; accepted: .png, .svg")
    if not plot.parent.is_dir():
        raise Refused(f"--plot {plot}: there is no folder {plot.parent}; accepted: a file in a folder that is there")


def files_picture(plot: Path, title: str, series: Sequence[Series], marks: Sequence[float]) -> bytes:
    """The picture in the format that the file's name asks for."""
    if plot.suffix == ".svg":
        return line_chart(title, series, marks, x_name="version", y_name="files").encode()
    return png_picture(chart_shapes(title, series, marks, x_name="version", y_name="files"))
