"""A declaration that differs from its table: each difference, how the table follows, and what stops a write."""

from dataclasses import replace

import pytest

from lakehouse import Append, Debezium, Landing, Merge, Overwrite, Table
from lakehouse.base.errors import Refused
from lakehouse.delta.snapshot import Column, DataFile, LogTail, Snapshot
from lakehouse.evolve.plan.changes import (
    CHANGE_KEYS,
    Change,
    Kind,
    Way,
    checked,
    compare,
)

LOG = LogTail(checkpoint_version=None, commit_count=1, commit_bytes=1)
LANDED = Table(
    key="bronze/t",
    source=Landing(
        prefix="landing/t/",
        format="json",
        schema="id BIGINT, city STRING, n INT, price DECIMAL(6,2), gone INT",
    ),
    write=Append(partition_by=("city",)),
)
DERIVED = Table(
    key="silver/t",
    inputs=(LANDED,),
    transform=lambda t: t,
    write=Merge(keys=("id",), order_by=("at",)),
)


BY_CITY = Append(partition_by=("city",))


def renamed(names: dict[str, str], write: Append = BY_CITY) -> Table:
    """The landed table, whose columns have other names now."""
    assert LANDED.source is not None
    schema = LANDED.source.schema
    for old, new in names.items():
        schema = schema.replace(f"{old} ", f"{new} ")
    source = replace(LANDED.source, schema=schema)
    return replace(LANDED, source=source, write=write, renamed=names)


def columns(text: str) -> tuple[Column, ...]:
    """Columns like `id bigint, at int 'of the row'`."""
    found = list[Column]()
    for each in text.split(", "):
        name, type_, *comment = each.split(" ", 2)
        found.append(Column(name=name, type=type_, comment="".join(comment).strip("'")))
    return tuple(found)


TABLE = Snapshot(
    table="bronze/t",
    uri="t",
    version=3,
    committed_ms=0,
    files=(),
    log=LOG,
    columns=columns("id bigint, city string, n int, price decimal(6,2), _source_file string"),
    partition_columns=("city",),
)
SAME = "id bigint, city string, n int, price decimal(6,2), _source_file string"


@pytest.mark.parametrize(
    ("declared", "added"),
    [
        (SAME, []),
        ("city string, id bigint, n int, price decimal(6,2), _source_file string", []),
        (f"zip int, {SAME}", [("zip", None)]),
        (
            "id bigint, a int, b struct<x:int>, city string, n int, price decimal(6,2), _source_file string, c date",
            [("a", "id"), ("b", "a"), ("c", "_source_file")],
        ),
    ],
)
def test_a_column_that_the_table_lacks_is_added_behind_the_one_declared_before_it(
    declared: str, added: list[tuple[str, str | None]]
) -> None:
    plan = checked(compare(LANDED, columns(declared), TABLE))
    assert [(each.column.name, each.after) for each in plan.added] == added
    assert plan.sentence.startswith("the declaration and the table agree") == (not added)


# The sentence, and the declared table, what differs in its columns, and how the table follows.
CHANGES: dict[str, tuple[Table, tuple[str, str], Kind, Way]] = {
    "the description of n has changed": (
        LANDED, ("n int", "n int 'of rows'"), Kind.COMMENT_CHANGED, Way.METADATA
    ),
    "n is declared as bigint, but is int in the table": (
        LANDED, ("n int", "n bigint"), Kind.TYPE_WIDENED, Way.OWN_ROWS
    ),
    "price is declared as decimal(8,3), but is decimal(6,2) in the table": (
        LANDED, ("decimal(6,2)", "decimal(8,3)"), Kind.TYPE_WIDENED, Way.OWN_ROWS
    ),
    "id is declared as int, but is bigint in the table": (
        LANDED, ("id bigint", "id int"), Kind.TYPE_CHANGED, Way.OWN_ROWS
    ),
    "n is renamed to number in the declaration": (
        renamed({"n": "number"}), ("n int", "number int"), Kind.COLUMN_RENAMED, Way.OWN_ROWS
    ),
    "n (int) is no longer declared: new rows have null there": (
        LANDED, ("n int, ", ""), Kind.COLUMN_LEFT, Way.STAYS
    ),
    # Spark takes it for the same name.
    "n is renamed to N in the declaration": (
        LANDED, ("n int", "N int"), Kind.COLUMN_RENAMED, Way.OWN_ROWS
    ),
    "the declaration partitions by nothing, but the table is partitioned by city": (
        replace(LANDED, write=Append()), ("", ""), Kind.PARTITIONING_CHANGED, Way.OWN_ROWS
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sentence", "change"), CHANGES.items(), ids=CHANGES)
def test_each_difference_has_a_way_and_stops_the_write_unless_it_is_safe(
    sentence: str, change: tuple[Table, tuple[str, str], Kind, Way]
) -> None:
    table, differs, kind, way = change
    declared = SAME.replace(*differs)
    plan = compare(table, columns(declared), TABLE)
    expected = [(kind, way, sentence)]
    assert [(change.kind, change.kind.way, change.sentence) for change in plan.changes] == expected
    assert bool(plan.blocking) == (way is Way.OWN_ROWS)
    if way is Way.OWN_ROWS:
        with pytest.raises(Refused, match=r"Nothing was written\. (Use|Either)") as error:
            checked(plan)
        assert sentence in str(error.value)
    overwritten = replace(table, write=Overwrite())
    assert not compare(overwritten, columns(declared), TABLE).blocking
    frozen = replace(table, evolution="refuse")
    if kind is not Kind.COLUMN_LEFT:
        with pytest.raises(Refused, match='its evolution is "refuse"'):
            checked(compare(frozen, columns(declared), TABLE))


def test_a_column_that_is_renamed_and_widened_at_once_is_two_changes_of_one_column() -> None:
    table = renamed({"n": "number", "gone": "other"})
    plan = compare(table, columns(SAME.replace("n int", "number bigint")), TABLE)
    expected = [(Kind.COLUMN_RENAMED, "n"), (Kind.TYPE_WIDENED, "n")]
    assert [(change.kind, change.before) for change in plan.changes] == expected
    assert plan.rebuild_from is Way.OWN_ROWS


def test_a_column_that_a_function_passes_on_is_renamed_with_that_of_its_input() -> None:
    """Otherwise the old rows would have null under the new name, without a word."""
    source = renamed({"n": "number", "price": "cost"})
    derived = replace(DERIVED, inputs=(source,))
    table = replace(TABLE, partition_columns=())
    passed_on = compare(derived, columns(SAME.replace("n int", "number int")), table)
    expected = [(Kind.COLUMN_RENAMED, "n")]
    assert [(change.kind, change.before) for change in passed_on.blocking] == expected
    selected_under_its_old_name = compare(derived, columns(SAME), table)
    assert selected_under_its_old_name.changes == ()


def test_a_partition_column_may_be_renamed() -> None:
    table = renamed({"city": "town"}, Append(partition_by=("town",)))
    plan = compare(table, columns(SAME.replace("city", "town")), TABLE)
    assert [change.kind for change in plan.changes] == [Kind.COLUMN_RENAMED]


def test_other_keys_need_the_inputs_and_landed_rows_of_other_keys_are_gone() -> None:
    written = [Change(kind=Kind.WRITE_CHANGED, sentence="its rows are to be merged")]
    table = replace(TABLE, partition_columns=())
    plan = compare(DERIVED, columns(SAME), table, written)
    assert plan.rebuild_from is Way.INPUTS
    assert plan.advice.endswith("then `lakehouse evolve silver/t`.")


PEOPLE = Table(
    key="bronze/people",
    source=Landing(
        prefix="landing/people/", format="json", schema="id BIGINT, n INT", changes=Debezium()
    ),
    write=Merge(keys=("id",)),
)
FILE = DataFile(path="1.parquet", size_bytes=9, modified_ms=0, partition=(), row_count=1)
MERGED = replace(
    TABLE,
    files=(FILE,),
    columns=columns("id bigint, n int, _position string"),
    partition_columns=(),
    properties={CHANGE_KEYS: '["id"]'},
)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (Merge(keys=("id",)), ""),
        (Merge(keys=("n", "id")), 'to be merged by ["id", "n"], and were merged by ["id"]'),
        (
            Merge(keys=("id",), deletes="soft"),
            'to be merged by ["id"], with deleted rows marked, and were merged by ["id"]',
        ),
    ],
    ids=["the same", "another key", "marked deletions"],
)
def test_landed_changes_written_in_another_way_are_refused(write: Merge, said: str) -> None:
    plan = compare(replace(PEOPLE, write=write), None, MERGED)
    if not said:
        assert plan.changes == ()
        return
    assert [change.kind.way for change in plan.impossible] == [Way.IMPOSSIBLE]
    assert said in plan.sentence
    assert "existing rows cannot be converted" in plan.sentence
    assert "under a new key" in plan.advice
    new = replace(MERGED, properties={})  # of a first batch, before its properties are set
    for table in (new, replace(new, files=(), columns=())):
        assert compare(replace(PEOPLE, write=write), None, table).changes == ()
    appended = replace(new, columns=columns("id bigint, n int"))
    assert "and were appended" in compare(replace(PEOPLE, write=write), None, appended).sentence


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_merge_into_a_table_of_the_write_mode_that_went_is_refused(deletes: str) -> None:
    """It has several rows per key, and a merge would overwrite them all."""
    versioned = columns(
        "id bigint, n int, _position string, _deleted boolean, valid_from timestamp, valid_to timestamp, is_current boolean"
    )
    people = replace(PEOPLE, write=Merge(keys=("id",), deletes=deletes))
    plan = compare(people, None, replace(MERGED, columns=versioned))
    assert [change.kind.way for change in plan.impossible] == [Way.IMPOSSIBLE]
    assert 'and were kept as a history by ["id"]' in plan.sentence
    # Columns of the source itself may have these names.
    schema = "id BIGINT, n INT, valid_from TIMESTAMP, valid_to TIMESTAMP, is_current BOOLEAN"
    own = replace(PEOPLE, source=replace(PEOPLE.landing, schema=schema))
    plain = [each for each in versioned if each.name != "_deleted"]
    assert compare(own, None, replace(MERGED, columns=tuple(plain))).changes == ()


def test_a_key_of_changes_may_be_renamed() -> None:
    source = replace(PEOPLE.landing, schema="no BIGINT, n INT")
    people = replace(PEOPLE, source=source, write=Merge(keys=("no",)), renamed={"id": "no"})
    assert compare(people, None, MERGED).changes == ()
    after = replace(MERGED, columns=columns("no bigint, n int, _position string"))
    for keys in ('["id"]', '["no"]'):  # before the next write records the present one, and after
        recorded = replace(after, properties={CHANGE_KEYS: keys})
        assert compare(people, None, recorded).changes == ()


def test_changed_code_is_said_and_stops_nothing() -> None:
    changed_code = [Change(kind=Kind.CODE_CHANGED, sentence="its code has changed")]
    plan = checked(compare(LANDED, columns(SAME), TABLE, changed_code))
    assert [change.kind for change in plan.changes] == [Kind.CODE_CHANGED]


def test_unknown_columns_are_not_compared_and_the_plan_says_so() -> None:
    plan = compare(LANDED, None, TABLE)
    assert (plan.changes, plan.columns_known) == ((), False)
    assert "the next write compares the columns" in plan.sentence


def test_an_overwrite_is_told_each_difference_that_it_replaces() -> None:
    table = replace(LANDED, write=Overwrite())
    declared = columns(SAME.replace("n int", "n string").replace("city string, ", ""))
    plan = compare(table, declared, TABLE)
    assert [change.sentence for change in plan.of(Kind.REPLACED)] == [
        "n is declared as string, but is int in the table",
        "the declaration partitions by nothing, but the table is partitioned by city",
    ]
