"""The declaration of a table's compaction: how its rows lie in files, and every knob."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lakehouse.core.declaration.column_names import check_columns
from lakehouse.core.declaration.knobs import (
    AMOUNT,
    SHARE_OR_OFF,
    check_knobs,
    instance_of,
    knob,
    one_of,
    or_none,
    tuple_of,
    whole,
)
from lakehouse.core.declaration.strategies import BySensor, type_of_strategy
from lakehouse.core.declaration.windows import Window
from lakehouse.core.errors import Refused

LAYERS = ("bronze", "silver", "gold")
MIB = 1024 * 1024
# A bound for what no reader tells (the log, listings, the next planner): a log is read in 7 us a file, so that many more take 10 ms.
_KNOWN_READERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BinPacking:
    """Small files are merged; rows keep no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZOrder:
    """Rows are laid out along a Z-order curve over `columns`; every run rewrites whole partitions."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_some("ZOrder.columns", self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiquidClustering:
    """Rows are clustered by `columns`, incrementally; the table has no partitions."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_some("LiquidClustering.columns", self.columns)


type_of_data_layout = BinPacking | ZOrder | LiquidClustering


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A table's knobs, as declared, or in force as `policy_for` gives them; those after the first six are for special cases."""

    strategy: type_of_strategy = knob(
        BySensor(),
        instance_of(type_of_strategy),
        "who keeps the files large, and when: [strategies](when.md#strategies)",
    )
    min_small_files: int = knob(
        0,
        whole(2, or_zero=True),
        "a compaction is due when it would really merge this many files. 0: the default of the layer",
        layers={"bronze": 40, "silver": 16, "gold": 8},
    )
    target_file_bytes: int = knob(
        0,
        whole(4096, or_zero=True),
        "files are filled up to this size; a file of three quarters of it is left alone. 0 follows the table: 16 MiB below 4 GiB, then a "
        "power of two that gives 128 files or more, up to 1 GiB from 128 GiB on",
    )
    windows: tuple[Window, ...] = knob(
        (),
        tuple_of(Window),
        'the hours (UTC) in which a compaction may start by itself, like `(Window(start="22:00", end="04:00", days=("sat", "sun")),)`. '
        "A window past midnight belongs to the day on which it starts. Without any: always",
    )
    data_layout: type_of_data_layout = knob(
        BinPacking(),
        instance_of(type_of_data_layout),
        "how rows lie in files: `BinPacking()` merges small files; `ZOrder(columns=…)` sorts whole partitions along these columns; "
        "`LiquidClustering(columns=…)` clusters a table without partitions by up to four columns",
    )
    mode: Literal["automatic", "recommend", "off"] = knob(
        "automatic",
        one_of("automatic", "recommend", "off"),
        '`"recommend"`: the plan is shown, a person runs it. `"off"`: nothing runs, unless a person insists (`--anyway`)',
    )
    max_small_file_age_hours: float = knob(
        24.0,
        AMOUNT,
        "a compaction is due as well when the oldest file that it would merge, and that no compaction wrote, has this age. 0: never",
    )
    purge_deleted_rows_share: float = knob(
        0.2,
        SHARE_OR_OFF,
        "a compaction is due as well when deletion vectors hide this share of the rows; it then removes them from every file. 0: never",
    )
    cooldown_minutes: float = knob(
        2.0, AMOUNT, "the sensor asks for at most one compaction of the table in so many minutes"
    )
    reads_per_day: float | None = knob(
        None,
        or_none(AMOUNT),
        "full reads a day by readers that Dagster does not know, 0: there are none. Where it is declared, a compaction waits until readers "
        "have lost what it takes ([rent or buy](internals/rent-or-buy.md)), or until forty times `min_small_files` or `max_small_file_age_hours`",
    )
    scan_cores: int = knob(
        1,
        whole(1),
        "so many cores scan the table: a compaction leaves it at least that many files, as long as each core has 4 MiB to read",
    )
    max_bytes_per_run: int = knob(
        16 * 1024 * MIB,
        whole(1, or_zero=True),
        "one run takes the partitions with most files gone per byte, up to this size; the next run goes on. 0: no bound",
    )
    verify: Literal["rows", "content"] = knob(
        "rows",
        one_of("rows", "content"),
        'how the rows are verified after the commit. `"rows"`: by row counts and column statistics '
        'in the log; if these are missing or differ, Spark compares every row. `"content"`: Spark '
        "always compares every row",
    )
    cold_hours: float = knob(
        0,
        AMOUNT,
        "only partitions whose rows nobody has changed for so long are compacted, the newest last. 0: all",
    )

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def bound_times(self) -> int:
        """The factor of `min_small_files` and `max_small_file_age_hours`: the losses of readers decide where all are known."""
        return 1 if self.reads_per_day is None else _KNOWN_READERS

    @property
    def most_small_files(self) -> int:
        """So many mergeable files make a compaction due whatever its readers have lost; fewer may, where they are not all known."""
        return self.min_small_files * self.bound_times

    @property
    def candidate_bytes(self) -> int:
        """Files below this size are candidates: three quarters of the target, so that the outputs of compactions stay."""
        return self.target_file_bytes * 3 // 4


def policy_for(layer: str, declared: Compaction) -> Compaction:
    """The policy in force: the table's declaration, with the layer's defaults where it leaves them open."""
    defaults = {
        each.name: each.metadata["layers"][layer]
        for each in fields(declared)
        if each.metadata["layers"]
    }
    return replace(
        declared,
        **{name: default for name, default in defaults.items() if not getattr(declared, name)},
    )


def _check_some(name: str, columns: Any) -> None:
    if (
        not isinstance(columns, tuple)
        or not columns
        or not all(isinstance(column, str) for column in columns)
    ):  # pyright: ignore[reportUnknownVariableType]
        raise Refused(f"{name} is {columns!r}; accepted: a tuple of at least one column")
    check_columns(name, columns)  # pyright: ignore[reportUnknownArgumentType]
