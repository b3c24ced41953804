"""Dates and times of landed Parquet and Avro as texts, by the calendar of the program that wrote the file.

Spark 2 and Hive count days in the hybrid calendar, which is Julian before 1582-10-15; all others in the proleptic
Gregorian one. The same number means days up to ten days apart. The metadata of a file may say which calendar it is.

**Safety properties** (tests in `test_calendars.py`)
- A date before 1582-10-15 is given only if the file shows its calendar, and the date exists in
  both.
- A time before 1582-10-16 is given only if the file shows the proleptic calendar: hybrid times also
  depend on a zone.
- No date or time outside of the years 1 to 9999 is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np

CalendarName = Literal["proleptic", "hybrid", "unknown"]

# The first days of the Gregorian calendar, as days since 1970-01-01. A time is compared with the day after it, for any zone.
_SWITCH_DAY = (date(1582, 10, 15) - date(1970, 1, 1)).days
_SWITCH_US = (_SWITCH_DAY + 1) * 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH_ORDINAL, date.max.toordinal() - _EPOCH_ORDINAL
_FIRST_US, _LAST_US = _FIRST_DAY * 86_400_000_000, (_LAST_DAY + 1) * 86_400_000_000 - 1
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_WRITE_AGAIN = "have its writer write such values as text, and land that"
# Before these versions Spark writes hybrid dates, and hybrid INT96; later ones do with a key that says so.
# Source: Spark 4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_SPARK_VERSION = "org.apache.spark.version"
_DATES_SINCE, _INT96_SINCE = "3.0.0", "3.1.0"
_LEGACY_DATES, _LEGACY_INT96 = "org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"
# Source: Hive, DataWritableWriteSupport.java and AvroContainerOutputFormat.java, WRITER_DATE_PROLEPTIC (HIVE-22405)
_HIVE_PROLEPTIC = "writer.date.proleptic"


class BeyondPython(NamedTuple):
    """A date (days) or a time of a year that Python has not, as a count of its unit (`D`, `ms`, `us`) since 1970-01-01."""

    count: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendars:
    """The calendars in which a file counts its dates and times, and its INT96 times."""

    dates: CalendarName
    int96: CalendarName


@dataclass(slots=True)
class Times:
    """Dates and times of one file as texts; `problems` says of the current row why it cannot be used."""

    calendars: Calendars
    problems: list[str] = field(default_factory=list[str])

    def date_text(self, days: int) -> str:
        """A date, given as days since 1970-01-01."""
        calendar = self.calendars.dates
        if days >= _SWITCH_DAY or calendar == "proleptic":
            return self._day(days)
        if calendar == "hybrid":
            year, month, day = _julian(days)
            try:
                return date(year, month, day).isoformat()
            except ValueError:
                text = f"{year:04}-{month:02}-{day:02}"
                self.problems.append(
                    f"the date {text} is of the Julian calendar, in which its file counts days, and does not exist in the Gregorian one"
                )
                return text
        self.problems.append(
            f"the date {_text(days, 'D')} is before 1582-10-15, and the file does not show whether it is of the Julian or the "
            f"Gregorian calendar (Spark 2 and Hive write Julian dates); {_WRITE_AGAIN}"
        )
        return _text(days, "D")

    def time_text(self, count: int, unit: str, *, zoned: bool, int96: bool = False) -> str:
        """A time, given as a count of its unit since 1970-01-01; what is below a microsecond is cut off."""
        microseconds = count * 1_000_000 // _UNITS_PER_SECOND[unit]
        calendar = self.calendars.int96 if int96 else self.calendars.dates
        if microseconds < _SWITCH_US and calendar != "proleptic":
            text = _text(count, unit)
            self.problems.append(
                f"the time {text} is before 1582-10-16, and the file does not show its day: it may be of the Julian calendar, as "
                f"Spark 2 and Hive write it in their own time zone; {_WRITE_AGAIN}"
            )
            return text
        if not _FIRST_US <= microseconds <= _LAST_US:
            text = _text(count, unit)
            self.problems.append(f"the time {text} is not in the years 1 to 9999")
            return text
        text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
        return f"{text}Z" if zoned else text

    def text(self, value: BeyondPython | date) -> str:
        """A date or time as it was read from Avro."""
        match value:
            case BeyondPython(count=days, unit="D"):
                return self.date_text(days)
            case BeyondPython(count=count, unit=unit):
                return self.time_text(count, unit, zoned=True)
            case datetime():
                zoned = value.tzinfo is not None
                plain = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
                count = (plain - _EPOCH) // timedelta(microseconds=1)
                return self.time_text(count, "us", zoned=zoned)
            case date():
                return self.date_text(value.toordinal() - _EPOCH_ORDINAL)

    def _day(self, days: int) -> str:
        if _FIRST_DAY <= days <= _LAST_DAY:
            return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
        self.problems.append(f"the date {_text(days, 'D')} is not in the years 1 to 9999")
        return _text(days, "D")


def file_calendars(metadata: Mapping[str, str], created_by: str | None) -> Calendars:
    """The calendars that a file's metadata shows.

    `created_by` is the library that wrote a Parquet file; `None` is unknown, as it always is of Avro. parquet-mr is used
    by Spark 2 and Hive, and by others, so that it shows nothing. Other libraries have the proleptic calendar alone.
    """
    if (version := metadata.get(_SPARK_VERSION)) is not None:
        is_old, is_old_int96 = version < _DATES_SINCE, version < _INT96_SINCE
        return Calendars(
            dates="hybrid" if is_old or _LEGACY_DATES in metadata else "proleptic",
            int96="hybrid" if is_old_int96 or _LEGACY_INT96 in metadata else "proleptic",
        )
    if (is_proleptic := metadata.get(_HIVE_PROLEPTIC)) is not None:
        known: CalendarName = "proleptic" if is_proleptic.lower() == "true" else "hybrid"
        return Calendars(dates=known, int96="unknown")
    is_of_spark = any(key.startswith("org.apache.spark.") for key in metadata)
    if created_by is None or created_by.startswith("parquet-mr version") or is_of_spark:
        return Calendars(dates="unknown", int96="unknown")
    return Calendars(dates="proleptic", int96="proleptic")


def _text(count: int, unit: str) -> str:
    """A date or time of any year."""
    return str(np.array(count).astype(f"datetime64[{unit}]"))


def _julian(days: int) -> tuple[int, int, int]:
    """Year, month and day in the Julian calendar.

    Source: E. G. Richards, "Calendars", Explanatory Supplement to the Astronomical Almanac (2013), 15.11.3
    """
    f = days + 2_440_588 + 1_401
    e = 4 * f + 3
    g = e % 1_461 // 4
    h = 5 * g + 2
    day = h % 153 // 5 + 1
    month = (h // 153 + 2) % 12 + 1
    return e // 1_461 - 4_716 + (14 - month) // 12, month, day
