"""Knobs per table: defaults per layer, overrides in the declaration, refusal with the field named."""

from dataclasses import dataclass, fields

from lakehouse.core.errors import Refused

LAYERS = ("bronze", "silver", "gold")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a declaration says of a table's compaction; a field left `None` takes the layer's default."""

    target_file_bytes: int | None = None
    min_small_files: int | None = None
    max_deleted_rows_ratio: float | None = None

    def __post_init__(self) -> None:
        _check_whole("target_file_bytes", self.target_file_bytes, least=4096)
        _check_whole("min_small_files", self.min_small_files, least=2)
        _check_share("max_deleted_rows_ratio", self.max_deleted_rows_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """The knobs in force for one table; every field is set."""

    target_file_bytes: int
    min_small_files: int
    max_deleted_rows_ratio: float

    @property
    def candidate_bytes(self) -> int:
        """Files below this size are candidates: three quarters of the target, so that what was compacted well stays."""
        return self.target_file_bytes * 3 // 4


# 128 MiB: Delta's own auto compaction target (DeltaSQLConf autoCompact.maxFileSize); 0.05: its OPTIMIZE default.
_DEFAULTS = {
    "bronze": CompactionPolicy(target_file_bytes=128 * MIB, min_small_files=40, max_deleted_rows_ratio=0.05),
    "silver": CompactionPolicy(target_file_bytes=128 * MIB, min_small_files=16, max_deleted_rows_ratio=0.05),
    "gold": CompactionPolicy(target_file_bytes=128 * MIB, min_small_files=8, max_deleted_rows_ratio=0.05),
}


def policy_for(layer: str, declared: Compaction) -> CompactionPolicy:
    """The policy in force: the layer's defaults under what the table declares."""
    if layer not in _DEFAULTS:
        raise Refused(f"layer is {layer!r}; accepted: {', '.join(LAYERS)}")
    default = _DEFAULTS[layer]
    chosen = {knob.name: getattr(declared, knob.name) for knob in fields(declared)}
    return CompactionPolicy(**{name: getattr(default, name) if value is None else value for name, value in chosen.items()})


def _check_whole(name: str, value: object, *, least: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise Refused(f"Compaction.{name} is {value!r}; accepted: a whole number, {least} or more")


def _check_share(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1):
        raise Refused(f"Compaction.{name} is {value!r}; accepted: a number above 0, at most 1")
