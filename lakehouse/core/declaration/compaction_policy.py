"""Knobs per table: defaults per layer, overrides in the declaration, refusal with the field named."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Literal

from lakehouse.core.declaration.column_names import check_columns
from lakehouse.core.declaration.strategies import BySensor, type_of_strategy
from lakehouse.core.declaration.windows import Window
from lakehouse.core.errors import Refused

LAYERS = ("bronze", "silver", "gold")
MODES = ("automatic", "recommend", "off")
MIB = 1024 * 1024


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
    """What a declaration says of a table's compaction; a field left `None` takes the layer's default.

    Triggers other than `min_small_files` are off at 0. `target_file_bytes` 0 follows the table's size. The bounds are off at 0.
    """

    # who and when
    strategy: type_of_strategy | None = None
    mode: Literal["automatic", "recommend", "off"] | None = None
    windows: tuple[Window, ...] | None = None
    # triggers
    min_small_files: int | None = None
    min_mergeable_bytes: int | None = None
    max_small_file_age_hours: float | None = None
    max_reads_hurt_share: float | None = None
    purge_deleted_rows_share: float | None = None
    slowdown_share: float | None = None
    cooldown_minutes: float | None = None
    # what is merged into what
    target_file_bytes: int | None = None
    max_deleted_rows_ratio: float | None = None
    scan_cores: int | None = None
    data_layout: type_of_data_layout | None = None
    # bounds of one run
    max_bytes_per_run: int | None = None
    max_seconds_per_run: float | None = None
    cold_hours: float | None = None
    # worth
    reads_per_day: float | None = None
    # hands off by itself
    breaker_failures: int | None = None
    breaker_hours: float | None = None
    max_rewrites: int | None = None

    def __post_init__(self) -> None:
        for knob in fields(self):
            value = getattr(self, knob.name)
            if value is not None:
                _CHECKS[knob.name](f"Compaction.{knob.name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """The knobs in force for one table; every field is set. `Compaction` says what they mean."""

    target_file_bytes: int
    min_small_files: int
    max_deleted_rows_ratio: float = 0.05
    strategy: type_of_strategy = field(default_factory=BySensor)
    mode: Literal["automatic", "recommend", "off"] = "automatic"
    windows: tuple[Window, ...] = ()
    min_mergeable_bytes: int = 0
    max_small_file_age_hours: float = 0
    max_reads_hurt_share: float = 0
    purge_deleted_rows_share: float = 0
    slowdown_share: float = 0
    cooldown_minutes: float = 0
    scan_cores: int = 1
    data_layout: type_of_data_layout = field(default_factory=BinPacking)
    max_bytes_per_run: int = 0
    max_seconds_per_run: float = 0
    cold_hours: float = 0
    reads_per_day: float = 0
    breaker_failures: int = 3
    breaker_hours: float = 6
    max_rewrites: int = 3

    @property
    def candidate_bytes(self) -> int:
        """Files below this size are candidates: three quarters of the target, so that what was compacted well stays."""
        return self.target_file_bytes * 3 // 4


_EVERY_LAYER: dict[str, Any] = {
    # Delta's own default: DeltaSQLConf, optimize.maxDeletedRowsRatio.
    "max_deleted_rows_ratio": 0.05,
    "max_small_file_age_hours": 24.0,
    "purge_deleted_rows_share": 0.2,
    "slowdown_share": 0.25,
    "cooldown_minutes": 2.0,
    "max_bytes_per_run": 16 * 1024 * MIB,
}
# A target of 0 follows the table's size: `core/target.py`.
_DEFAULTS = {
    "bronze": CompactionPolicy(target_file_bytes=0, min_small_files=40, **_EVERY_LAYER),
    "silver": CompactionPolicy(target_file_bytes=0, min_small_files=16, **_EVERY_LAYER),
    "gold": CompactionPolicy(target_file_bytes=0, min_small_files=8, **_EVERY_LAYER),
}


def policy_for(layer: str, declared: Compaction) -> CompactionPolicy:
    """The policy in force: the layer's defaults under what the table declares."""
    if layer not in _DEFAULTS:
        raise Refused(f"layer is {layer!r}; accepted: {', '.join(LAYERS)}")
    default = _DEFAULTS[layer]
    chosen = {knob.name: getattr(declared, knob.name) for knob in fields(declared)}
    return CompactionPolicy(**{name: getattr(default, name) if value is None else value for name, value in chosen.items()})


def _check_some(name: str, columns: object) -> None:
    if not isinstance(columns, tuple) or not columns or not all(isinstance(column, str) for column in columns):  # pyright: ignore[reportUnknownVariableType]
        raise Refused(f"{name} is {columns!r}; accepted: a tuple of at least one column")
    check_columns(name, columns)  # pyright: ignore[reportUnknownArgumentType]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Whole:
    """A whole number from `least` on, or 0 where that means off."""

    def __init__(self, least: int, *, or_zero: bool = False) -> None:
        self._least, self._or_zero = least, or_zero

    def __call__(self, name: str, value: object) -> None:
        fits = isinstance(value, int) and not isinstance(value, bool) and (value >= self._least or (self._or_zero and value == 0))
        if not fits:
            raise Refused(f"{name} is {value!r}; accepted: a whole number, {self._least} or more{', or 0' if self._or_zero else ''}")


def _amount(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 <= value < inf:
        raise Refused(f"{name} is {value!r}; accepted: a number, 0 or more")


def _share(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 < value <= 1:
        raise Refused(f"{name} is {value!r}; accepted: a number above 0, at most 1")


def _share_or_off(name: str, value: Any) -> None:
    if not _is_number(value) or not 0 <= value <= 1:
        raise Refused(f"{name} is {value!r}; accepted: a number from 0 (off) to 1")


class _OneOf:
    def __init__(self, kinds: Any) -> None:
        self._kinds = kinds

    def __call__(self, name: str, value: object) -> None:
        if not isinstance(value, self._kinds):
            raise Refused(f"{name} is {value!r}; accepted: {', '.join(kind.__name__ for kind in self._kinds.__args__)}")


def _mode(name: str, value: object) -> None:
    if value not in MODES:
        raise Refused(f"{name} is {value!r}; accepted: {', '.join(MODES)}")


def _windows(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, Window) for each in value):  # pyright: ignore[reportUnknownVariableType]
        raise Refused(f"{name} is {value!r}; accepted: a tuple of Window")


_CHECKS: Mapping[str, Any] = {
    "strategy": _OneOf(type_of_strategy),
    "mode": _mode,
    "windows": _windows,
    "min_small_files": _Whole(2),
    "min_mergeable_bytes": _Whole(1, or_zero=True),
    "max_small_file_age_hours": _amount,
    "max_reads_hurt_share": _share_or_off,
    "purge_deleted_rows_share": _share_or_off,
    "slowdown_share": _amount,
    "cooldown_minutes": _amount,
    "target_file_bytes": _Whole(4096, or_zero=True),
    "max_deleted_rows_ratio": _share,
    "scan_cores": _Whole(1),
    "data_layout": _OneOf(type_of_data_layout),
    "max_bytes_per_run": _Whole(1, or_zero=True),
    "max_seconds_per_run": _amount,
    "cold_hours": _amount,
    "reads_per_day": _amount,
    "breaker_failures": _Whole(1),
    "breaker_hours": _amount,
    "max_rewrites": _Whole(2),
}
