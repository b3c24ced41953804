"""Converts dates and times of landed Parquet and Avro files to ISO 8601 strings.

Spark 2 and Hive count days in a hybrid calendar, which is Julian before 1582-10-15. Other writers
use the proleptic Gregorian calendar, so the same number may mean another date. The metadata of a
file may show which calendar it uses.

**Safety properties** (tests in `test_dates_to_iso.py`)
- A date before 1582-10-15, or a time before 1582-10-16, is loaded only if the file shows that it
  uses the Gregorian calendar. (A time zone may shift a time by a day.)
- No date or time outside of the years 1 to 9999 is loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

# Replaces the dates and times in a value by texts.
TextOf = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
# The first Gregorian day, as days since 1970-01-01. Times are compared with the day after it.
_SWITCH_DAY = date(1582, 10, 15).toordinal() - _EPOCH_ORDINAL
_SWITCH_US = (_SWITCH_DAY + 1) * 86_400_000_000
_FIRST_DAY = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY = date.max.toordinal() - _EPOCH_ORDINAL
_FIRST_US = _FIRST_DAY * 86_400_000_000
_LAST_US = (_LAST_DAY + 1) * 86_400_000_000 - 1
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Before these versions, Spark writes hybrid dates and INT96 times. Later versions mark such files
# with a key.
# Source: Spark 4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_SPARK_VERSION = "org.apache.spark.version"
_DATES_SINCE = "3.0.0"
_INT96_SINCE = "3.1.0"
_LEGACY_DATES = "org.apache.spark.legacyDateTime"
_LEGACY_INT96 = "org.apache.spark.legacyINT96"
# Source: Hive, DataWritableWriteSupport.java, WRITER_DATE_PROLEPTIC (HIVE-22405)
_HIVE_PROLEPTIC = "writer.date.proleptic"


class BeyondPython(NamedTuple):
    """A date or time that Python cannot represent: a count of its unit since 1970-01-01.

    The unit is `D`, `ms` or `us`.
    """

    count: int
    unit: str


_NOT_GREGORIAN = (
    ", and the file does not show that it uses the Gregorian calendar (Spark 2 and Hive write "
    "Julian dates). Write such values as text, and land these rows in a new file"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendars:
    """Whether a file's dates and times, and its INT96 times, are known to be Gregorian."""

    are_gregorian: bool
    are_int96_gregorian: bool


@dataclass(slots=True)
class DateTexts:
    """Converts dates and times of one file to texts.

    `problems` collects the reasons why values of the current row cannot be loaded. `of_columns` has
    a function for each column whose dates and times are read as counts.
    """

    calendars: Calendars
    problems: list[str] = field(default_factory=list[str])
    of_columns: Mapping[str, TextOf] = field(default_factory=dict[str, TextOf])

    def date_text(self, days: int) -> str:
        """The text of a date, given as days since 1970-01-01."""
        is_in_years = _FIRST_DAY <= days <= _LAST_DAY
        if is_in_years:
            text = date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
        else:
            text = _text(days, "D")
        if days < _SWITCH_DAY and not self.calendars.are_gregorian:
            self._refuse_calendar(f"the date {text} is before 1582-10-15")
        elif not is_in_years:
            self.problems.append(f"the date {text} is not in the years 1 to 9999")
        return text

    def time_text(self, count: int, unit: str, *, zoned: bool, int96: bool = False) -> str:
        """The text of a time, given as a count of `unit` since 1970-01-01.

        The time is rounded down to microseconds. `zoned` means UTC, so the text ends in `Z`.
        """
        microseconds = count * 1_000_000 // _UNITS_PER_SECOND[unit]
        is_in_years = _FIRST_US <= microseconds <= _LAST_US
        if is_in_years:
            text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
        else:
            text = _text(count, unit)
        calendars = self.calendars
        is_gregorian = calendars.are_int96_gregorian if int96 else calendars.are_gregorian
        if microseconds < _SWITCH_US and not is_gregorian:
            self._refuse_calendar(f"the time {text} is before 1582-10-16")
        elif not is_in_years:
            self.problems.append(f"the time {text} is not in the years 1 to 9999")
        return f"{text}Z" if zoned and is_in_years else text

    def text(self, value: BeyondPython | date) -> str:
        """The text of a date or time that was read from Avro."""
        match value:
            case BeyondPython(count=days, unit="D"):
                return self.date_text(days)
            case BeyondPython(count=count, unit=unit):
                return self.time_text(count, unit, zoned=True)
            case datetime():
                zoned = value.tzinfo is not None
                utc_value = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
                count = (utc_value - _EPOCH) // timedelta(microseconds=1)
                return self.time_text(count, "us", zoned=zoned)
            case date():
                return self.date_text(value.toordinal() - _EPOCH_ORDINAL)

    def _refuse_calendar(self, finding: str) -> None:
        self.problems.append(f"{finding}{_NOT_GREGORIAN}")


def not_gregorian(word: str, day: str) -> tuple[str, str]:
    """The text before and after a date or time (`word`) before `day`, as a reason to refuse it."""
    return f"the {word} ", f" is before {day}{_NOT_GREGORIAN}"


def file_calendars(metadata: Mapping[str, str], created_by: str | None) -> Calendars:
    """The calendars that a file's metadata shows.

    `created_by` is the library that wrote a Parquet file, or `None` if unknown (always for Avro).
    The library parquet-mr does not show the calendar, because Spark 2, Hive and other programs use
    it. Other libraries write Gregorian dates, unless the metadata has a key of Spark.
    """
    version = metadata.get(_SPARK_VERSION)
    if version is not None:
        return Calendars(
            are_gregorian=version >= _DATES_SINCE and _LEGACY_DATES not in metadata,
            are_int96_gregorian=version >= _INT96_SINCE and _LEGACY_INT96 not in metadata,
        )
    hive_proleptic = metadata.get(_HIVE_PROLEPTIC)
    if hive_proleptic is not None:
        return Calendars(are_gregorian=hive_proleptic.lower() == "true", are_int96_gregorian=False)
    is_spark = any(key.startswith("org.apache.spark.") for key in metadata)
    is_known = created_by is not None and not created_by.startswith("parquet-mr version")
    is_gregorian = is_known and not is_spark
    return Calendars(are_gregorian=is_gregorian, are_int96_gregorian=is_gregorian)


def _text(count: int, unit: str) -> str:
    """The text of a date or time in any year."""
    return str(np.array(count).astype(f"datetime64[{unit}]"))
