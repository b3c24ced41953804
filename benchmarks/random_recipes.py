"""Draws random tables from a seed, as SQL statements with known features."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from benchmarks.random_features import PARTITIONS, PROPERTIES
from lakehouse.declare.policies import Compaction

_DELTA = "spark.databricks.delta."
_KIB = 1024

_SHARES = {
    "deletion vectors": 0.55,
    "auto compaction": 0.08,
    "optimized write": 0.1,
    "column mapping by name": 0.25,
}
STEPS = ("append", "no statistics", "equal sizes", "delete", "update", "merge", "earlier compaction", "restore", "drop partition",
         "added column", "renamed column", "purge")  # fmt: skip
_WEIGHTS = (5, 1, 1, 5, 2, 2, 3, 1, 1, 1, 1, 1)


type_of_statement = tuple[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one table is made and compacted."""

    name: str
    features: tuple[str, ...]
    made: tuple[type_of_statement, ...]
    policy: Compaction
    forgets_commits: bool
    foreign_spellings: bool

    def statements(self, uri: str) -> Iterator[type_of_statement]:
        """The SQL that makes the table at `uri`, each with the settings that it runs under."""
        for statement, confs in self.made:
            yield statement.replace("{t}", f"delta.`{uri}`"), confs


def draw(seed: int, number: int) -> Recipe:
    """The table with this number and seed; always the same."""
    return _Draw(Random(f"{seed}/{number}"), f"{seed}_{number}").recipe()


class _Draw:
    """Statements and features drawn so far."""

    def __init__(self, random: Random, name: str) -> None:
        self._random, self._name = random, name
        self._partitions = (
            random.choice(list(PARTITIONS)) if random.random() < 0.75 else "no partitions"
        )
        self._columns, values = PARTITIONS[self._partitions]
        self._values = (
            tuple(random.sample(values, min(len(values), random.randint(2, 4)))) if values else ()
        )
        self._features: dict[str, None] = {self._partitions: None}
        self._made: list[type_of_statement] = []
        self._writes = 0
        self._text = "text"

    def recipe(self) -> Recipe:
        """The whole table."""
        self._create()
        self._append()
        for step in self._random.choices(STEPS, _WEIGHTS, k=self._random.randint(2, 4)):
            _STEPS[step](self)
        if self._chance(0.8):  # else every other table ends with nothing to do
            self._append()
        target = self._random.choice([6, 8, 12, 16, 24, 48, 128]) * _KIB
        bound = (
            self._has("bounded run") * self._random.choice([1, target, 5 * target])
            if self._chance(0.25)
            else 0
        )
        forgets_commits = self._chance(0.15) and bool(self._has("commits forgotten"))
        # Files of the others have no row ids and no in-commit timestamps.
        own_writers_only = self._features.keys() & {"row tracking", "in-commit timestamps"}
        foreign_spellings = (
            bool(self._values)
            and not own_writers_only
            and self._chance(0.4)
            and bool(self._has("foreign spellings of partition values"))
        )
        return Recipe(
            name=self._name,
            features=tuple(self._features),
            made=tuple(self._made),
            policy=Compaction(
                target_file_bytes=target,
                min_small_files=2,
                max_bytes_per_run=bound,
                purge_deleted_rows_share=0,
            ),
            forgets_commits=forgets_commits,
            foreign_spellings=foreign_spellings,
        )

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _has(self, feature: str) -> int:
        self._features[feature] = None
        return 1

    def _do(self, statement: str, **confs: str) -> None:
        self._made.append(
            (statement, {_DELTA + name.replace("__", "."): value for name, value in confs.items()})
        )

    def _create(self) -> None:
        properties = {"delta.enableDeletionVectors": "false"}
        for feature, own in PROPERTIES.items():
            if self._chance(_SHARES.get(feature, 0.12)) and not own.keys() & (
                properties.keys() - {"delta.enableDeletionVectors"}
            ):
                properties |= own
                self._has(feature)
        if self._chance(0.5):
            properties["delta.checkpointInterval"] = str(self._random.randint(1, 3))
            self._has("checkpoints in between")
        columns = f"id BIGINT, text STRING{', ' if self._columns else ''}{self._columns}"
        by = f"PARTITIONED BY ({', '.join(self._partition_names)})" if self._columns else ""
        told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._do(f"CREATE TABLE {{t}} ({columns}) USING delta {by} TBLPROPERTIES ({told})")

    @property
    def _partition_names(self) -> tuple[str, ...]:
        return tuple(column.split()[0] for column in self._columns.split(", ") if column)

    def _rows(self, *, equal: bool = False) -> str:
        """A SELECT of some files' rows: a task for each file, and rows enough in each for sizes from 1 to some 40 KiB."""
        files = self._random.randint(2, 6)
        counts = (
            [self._random.randint(20, 20)] * files
            if equal
            else [int(10 ** self._random.uniform(0.5, 2.9)) for _ in range(files)]
        )
        self._writes += 1
        text = (
            "repeat('x', 64)"
            if equal
            else f"sha2(string(file * 1000003 + n + {self._writes}), 256)"
        )
        rows = (
            f"SELECT id AS file, explode(sequence(1, element_at(array({', '.join(map(str, counts))}), INT(id) + 1))) AS n "
            f"FROM range(0, {files}, 1, {files})"
        )
        columns = ["id", "text"]
        if self._values:
            values = [f"named_struct({', '.join(self._named(value))})" for value in self._values]
            chosen = f"element_at(array({', '.join(values)}), INT(1 + pmod(file + n * {self._random.choice([0, 1])}, {len(values)})))"
            rows = f"SELECT *, {chosen} AS v FROM ({rows})"
            columns += [f"v.{name}" for name in self._partition_names]
        rows = f"SELECT *, {self._writes} * 1000000 + file * 10000 + n AS id, {text} AS text FROM ({rows})"
        return f"SELECT {', '.join(columns)} FROM ({rows})"

    def _named(self, value: str) -> list[str]:
        types = [column.split(maxsplit=1) for column in self._columns.split(", ")]
        parts = value.split(", ") if len(types) > 1 else [value]
        return [
            f"'{name.strip('`')}', CAST({part} AS {type_})"
            for (name, type_), part in zip(types, parts, strict=True)
        ]

    def _insert(self, rows: str, **confs: str) -> None:
        names = ", ".join(("id", self._text, *self._partition_names))
        if "auto compaction" in self._features:
            confs = {
                **confs,
                "autoCompact__minNumFiles": "2",
                "autoCompact__maxFileSize": str(32 * _KIB),
            }
        self._do(f"INSERT INTO {{t}} ({names}) {rows}", **confs)

    def _append(self) -> None:
        if self._partitions == "partitions: timestamp" and self._chance(0.4):
            self._has("two spellings of a timestamp")
            self._insert(self._rows(), write__utcTimestampPartitionValues="false")
        else:
            self._insert(self._rows())

    def _append_without_statistics(self) -> None:
        if "row tracking" in self._features:
            return self._append()  # Delta gives rows their ids by the counts in the statistics, and refuses such a write
        self._has("no statistics")
        return self._insert(self._rows(), stats__collect="false")

    def _append_equal_sizes(self) -> None:
        self._has("equal sizes")
        self._insert(self._rows(equal=True))

    def _some_rows(self) -> str:
        kinds = (
            f"id % {self._random.choice([3, 17, 40])} = 1",
            f"id % 10000 < {self._random.choice([3, 30, 200])}",
            "id % 10000 = 2",
        )
        return self._random.choice(kinds)

    def _delete(self) -> None:
        self._has("DELETE")
        self._do(f"DELETE FROM {{t}} WHERE {self._some_rows()}")

    def _update(self) -> None:
        self._has("UPDATE")
        self._do(
            f"UPDATE {{t}} SET {self._text} = concat('u', {self._text}) WHERE {self._some_rows()}"
        )

    def _merge(self) -> None:
        self._has("MERGE")
        source = self._rows()
        assign = ", ".join(f"{own} = s.{name}" for own, name in self._own_names())
        own, theirs = zip(*self._own_names(), strict=True)
        self._do(
            f"MERGE INTO {{t}} t USING (SELECT id - 1000000 AS i, * FROM ({source})) s ON t.id = s.i "
            f"WHEN MATCHED AND s.id % 7 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {assign} "
            f"WHEN NOT MATCHED AND s.id % 3 = 0 THEN INSERT ({', '.join(own)}) "
            f"VALUES ({', '.join(f's.{name}' for name in theirs)})"
        )

    def _own_names(self) -> list[tuple[str, str]]:
        return [
            ("id", "id"),
            (self._text, "text"),
            *((name, name) for name in self._partition_names),
        ]

    def _optimize(self) -> None:
        self._has("earlier compaction")
        size = str(self._random.choice([4, 16, 64]) * _KIB)
        self._do("OPTIMIZE {t}", optimize__minFileSize=size, optimize__maxFileSize=size)

    def _restore(self) -> None:
        self._has("RESTORE")
        self._do("RESTORE TABLE {t} TO VERSION AS OF 1")
        self._text = "text"  # no column had another name then

    def _drop_partition(self) -> None:
        if self._values:
            self._has("deleted partition")
            name = self._partition_names[0]
            value = self._values[0].split(", ")[0]
            self._do(f"DELETE FROM {{t}} WHERE {name} <=> {value}")

    def _add_column(self) -> None:
        self._has("added column")
        self._do(f"ALTER TABLE {{t}} ADD COLUMN (late_{len(self._made)} INT)")

    def _rename_column(self) -> None:
        if self._features.keys() & {"column mapping by name", "column mapping by id"}:
            self._has("renamed column")
            new = f"`text {len(self._made)}`"
            self._do(f"ALTER TABLE {{t}} RENAME COLUMN {self._text} TO {new}")
            self._text = new

    def _purge(self) -> None:
        self._has("REORG PURGE")
        self._do("REORG TABLE {t} APPLY (PURGE)")


_STEPS: Mapping[str, Callable[[_Draw], None]] = {
    "append": _Draw._append,
    "no statistics": _Draw._append_without_statistics,
    "equal sizes": _Draw._append_equal_sizes,
    "delete": _Draw._delete,
    "update": _Draw._update,
    "merge": _Draw._merge,
    "earlier compaction": _Draw._optimize,
    "restore": _Draw._restore,
    "drop partition": _Draw._drop_partition,
    "added column": _Draw._add_column,
    "renamed column": _Draw._rename_column,
    "purge": _Draw._purge,
}
