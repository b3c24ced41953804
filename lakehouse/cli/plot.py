"""`--plot FILE`: files over versions as a picture."""

from collections.abc import Sequence
from pathlib import Path

from lakehouse.core.errors import Refused
from lakehouse.report.chart import Series, line_chart


def check_plot(plot: Path) -> None:
    """Refuses a file that no picture can be written to, before any work is done for it."""
    if plot.suffix not in (".png", ".svg"):
        raise Refused(f"--plot {plot} ends in {plot.suffix or 'nothing'}; accepted: .png, .svg")
    if not plot.parent.is_dir():
        raise Refused(f"--plot {plot}: there is no folder {plot.parent}; accepted: a file in a folder that is there")


def files_picture(plot: Path, title: str, series: Sequence[Series], marks: Sequence[float]) -> bytes:
    """The picture in the format that the file's name asks for."""
    return line_chart(title, series, marks, x_name="version", y_name="files", file_format="svg" if plot.suffix == ".svg" else "png")
