"""Changes of a declaration for every way of writing a table, with an oracle that was told each change."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from lakehouse import Append, Dms, Landing, Merge, Overwrite, Table
from lakehouse.lake.lake import Lake
from lakehouse_tests.support.example_lake import land

type_of_row = dict[str, Any]

# The declared columns before each change: name -> type in DDL.
BASE = {
    "id": "BIGINT",
    "n": "INT",
    "price": "DECIMAL(6,2)",
    "city": "STRING",
    "day": "DATE",
    "ratio": "FLOAT",
    "big": "BIGINT",
}


def _row(*values: Any) -> type_of_row:
    return dict(zip(BASE, values, strict=True))


# Two rows before the change, an update of one of them, and rows after it in old and new files.
BEFORE = (
    _row(1, 5, "10.25", "Rome", "2013-01-05", 0.5, 7),
    _row(2, 6, "0.50", "Oslo", "2013-01-06", 1.5, 8),
    _row(1, 9, "10.75", "Bern", "2013-01-07", 2.5, 9),
)
AFTER = (
    _row(2, 7, "1.25", "Riga", "2013-01-06", 3.5, 3),
    _row(3, 8, "2.25", "Kiel", "2013-01-08", 4.5, 4),
)
# Columns that some changes add; the last row has values for them.
ADDED: type_of_row = {"note": "x", "more": 4}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One change: the declared columns after it, how it is applied, and the commands that it needs."""

    columns: Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    comments: Mapping[str, str] = field(default_factory=dict[str, str])
    # Whether the next write is refused until the change is applied. An overwrite never is.
    asks: bool = False
    # Part of the refusal of a change that cannot be applied.
    impossible: str = ""
    drop: tuple[str, ...] = ()


def _with(**changed: str) -> dict[str, str]:
    return {**BASE, **changed}


def _without(*names: str) -> dict[str, str]:
    return {name: type_ for name, type_ in BASE.items() if name not in names}


def _behind(before: str, new: Mapping[str, str]) -> dict[str, str]:
    columns = dict[str, str]()
    for name, type_ in BASE.items():
        columns[name] = type_
        if name == before:
            columns |= new
    return columns


def _renamed(**names: str) -> dict[str, str]:
    return {names.get(name, name): type_ for name, type_ in BASE.items()}


CASES: dict[str, Case] = {
    "nothing": Case(columns=BASE),
    "a column at the end": Case(columns=_with(note="STRING")),
    "a column in the middle": Case(columns=_behind("n", {"note": "STRING"})),
    "a column at the start": Case(columns={"note": "STRING", **BASE}),
    "two columns": Case(columns={"note": "STRING", **BASE, "more": "INT"}),
    "a described column": Case(columns=_with(note="STRING"), comments={"note": "of the row"}),
    "a description": Case(columns=BASE, comments={"n": "how many"}),
    "another order": Case(columns=dict(reversed(BASE.items()))),
    "a wider whole number": Case(columns=_with(n="BIGINT"), asks=True),
    "a whole number as a decimal": Case(columns=_with(n="DECIMAL(12,2)"), asks=True),
    "a wider decimal": Case(columns=_with(price="DECIMAL(9,3)"), asks=True),
    "a wider float": Case(columns=_with(ratio="DOUBLE"), asks=True),
    "a day as a time": Case(columns=_with(day="TIMESTAMP_NTZ"), asks=True),
    "a new name": Case(columns=_renamed(city="town"), renamed={"city": "town"}, asks=True),
    "two new names": Case(
        columns=_renamed(city="town", n="number"),
        renamed={"city": "town", "n": "number"},
        asks=True,
    ),
    "a new name and a wider type": Case(
        columns={**_renamed(n="number"), "number": "BIGINT"}, renamed={"n": "number"}, asks=True
    ),
    "a new name and a new column": Case(
        columns={**_renamed(city="town"), "note": "STRING"}, renamed={"city": "town"}, asks=True
    ),
    "a narrower type that fits": Case(columns=_with(big="INT"), asks=True),
    "a narrower type that does not fit": Case(
        columns=_with(price="DECIMAL(4,1)"), asks=True, impossible="cannot exactly hold"
    ),
    "a text of a number": Case(columns=_with(big="STRING"), asks=True),
    "a column less": Case(columns=_without("city")),
    "two columns less and one more": Case(columns={**_without("city", "n"), "note": "STRING"}),
    "a column dropped": Case(columns=_without("city"), drop=("city",)),
}


def value_as(value: Any, ddl: str) -> Any:
    """A value of a landed row as Python reads it from a column of this type."""
    if value is None:
        return None
    match ddl.partition("(")[0]:
        case "DECIMAL":
            scale = int(ddl.rpartition(",")[2].rstrip(")"))
            return Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        case "STRING":
            return str(value)
        case "DATE":
            return datetime.date.fromisoformat(value)
        case "TIMESTAMP_NTZ":
            return datetime.datetime.fromisoformat(f"{value}T00:00:00")
        case _:
            return value


class Way:
    """One way of writing a table: how it is declared, how rows arrive, and which rows it has then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_landed = name.startswith("landed")
        self.mode = name.partition(" ")[2]

    @property
    def key(self) -> str:
        return "bronze/rows" if self.is_landed else "silver/rows"

    def tables(self, case: Case) -> list[Table]:
        """The declared tables, the changed one last."""
        if self.is_landed:
            return [self._landed(case, self._write)]
        wide = Case(columns={**BASE, "note": "STRING", "more": "INT", "seq": "BIGINT"})
        source = self._landed(wide, Append())
        return [source, self._derived(case, source)]

    def _landed(self, case: Case, write: Any) -> Table:
        columns = [self._ddl(case, name, type_) for name, type_ in case.columns.items()]
        changes = None
        if self.is_landed and self.mode == "merge":
            columns = ["Op STRING", "seq BIGINT", "at TIMESTAMP", *columns]
            changes = Dms(position=("seq",), committed_at="at")
        landing = Landing(
            prefix="landing/rows/", format="json", schema=", ".join(columns), changes=changes
        )
        return Table(key="bronze/rows", source=landing, write=write, renamed=dict(case.renamed))

    @property
    def _write(self) -> Any:
        match self.mode, self.is_landed:
            case "append", _:
                return Append()
            case "overwrite", _:
                return Overwrite()
            case _, True:
                return Merge(keys=("id",))
            case _:
                return Merge(keys=("id",), order_by=("seq",))

    def _derived(self, case: Case, source: Table) -> Table:
        origin = {new: old for old, new in case.renamed.items()}
        columns = [
            (name, type_, origin.get(name, name), case.comments.get(name, ""))
            for name, type_ in case.columns.items()
        ]

        def transform(rows: Any) -> Any:
            chosen = [
                rows[old].cast(type_.lower()).alias(name, metadata={"comment": comment})
                for name, type_, old, comment in columns
            ]
            return rows.select(*chosen, rows["seq"])

        return Table(
            key="silver/rows",
            inputs=(source,),
            write=self._write,
            transform=transform,
            renamed=dict(case.renamed),
        )

    @staticmethod
    def _ddl(case: Case, name: str, type_: str) -> str:
        comment = case.comments.get(name)
        return f"{name} {type_}" + (f" COMMENT '{comment}'" if comment else "")

    def land(self, lake: Lake, number: int, row: type_of_row, names: Mapping[str, str]) -> None:
        """A landed file with one row, under the earlier names or those of `names`."""
        line: type_of_row = {names.get(name, name): value for name, value in row.items()}
        if self.is_landed and self.mode == "merge":
            line |= {"Op": "U", "seq": number, "at": f"2013-02-01T00:00:{number:02}Z"}
        if not self.is_landed:
            line["seq"] = number
        land(lake, f"{number:03}.json", [line], prefix="landing/rows/")

    def last_row(self, case: Case) -> type_of_row:
        """The last row that lands, in a file of the changed declaration."""
        more = {name: value for name, value in ADDED.items() if name in case.columns}
        return {**AFTER[-1], **(more if self.is_landed else ADDED)}

    def rows_after(
        self, case: Case, rows: Sequence[type_of_row], is_new: Callable[[int], bool]
    ) -> list[type_of_row]:
        """The rows of the table, with the declared columns and those that stay, as it must be."""
        left = self.left(case)
        stored = [
            self._stored(case, row, left, is_new=is_new(place)) for place, row in enumerate(rows)
        ]
        if self.mode == "append" or (self.mode == "overwrite" and not self.is_landed):
            found = stored
            if self.mode == "overwrite":
                found = [self._stored(case, row, left, is_new=True) for row in rows]
        elif self.mode == "overwrite":
            found = stored[-1:]
        else:
            found = [*{row["id"]: row for row in stored}.values()]
        return sorted(found, key=str)

    def left(self, case: Case) -> list[str]:
        """The columns that stay in the table although they are not declared any more."""
        if self.mode == "overwrite":
            return []
        kept = [name for name in BASE if name not in case.columns and name not in case.renamed]
        return [name for name in kept if name not in case.drop]

    def _stored(
        self, case: Case, row: type_of_row, left: Sequence[str], *, is_new: bool
    ) -> type_of_row:
        origin = {new: old for old, new in case.renamed.items()}
        values = {
            name: value_as(row.get(origin.get(name, name)), type_)
            for name, type_ in case.columns.items()
        }
        others = {name: None if is_new else value_as(row.get(name), BASE[name]) for name in left}
        return {**values, **others}


WAYS = (
    "landed append",
    "landed overwrite",
    "landed merge",
    "derived append",
    "derived merge",
    "derived overwrite",
)
