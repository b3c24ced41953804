"""Names and values reach SQL whole, or not at all."""

from datetime import date, datetime, timedelta, timezone

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused
from lakehouse.delta.snapshot import Column
from lakehouse.spark import statements
from lakehouse.write.commit_rows import between

ODD_TEXTS = [
    "it's",
    'a "b" `c`',
    "back\\slash \\' \\u0041",
    "tab\tline\nfeed\rnul\0del\x7f",
    "ü %20 日本 😀",
    "",
    "-- x",
    "${spark.app.id}",
]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("a", "`a`"), ("a b", "`a b`"), ("a`; DROP TABLE t --", "`a``; DROP TABLE t --`")],
)
def test_a_name_stays_between_its_backticks(name: str, quoted: str) -> None:
    assert statements.quote(name) == quoted


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "a\rb", "a${spark.app.id}b"])
def test_a_name_that_no_column_can_have_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot be used in SQL"):
        statements.quote(name)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("it's", r"'it\'s'"), ("a\\", r"'a\\'"), ("${x}", r"'\u0024{x}'"), ("a\nb", r"'a\u000ab'")],
)
def test_a_text_stays_between_its_quotes(text: str, quoted: str) -> None:
    assert statements.literal(text) == quoted


def test_a_literal_means_exactly_its_text(spark: SparkSession) -> None:
    selected = spark.sql(
        f"SELECT {', '.join(statements.literal(text) for text in ODD_TEXTS)}"
    ).collect()[0]
    assert list(selected) == ODD_TEXTS


def test_partitions_are_named_by_nested_conditions() -> None:
    columns = [
        Column(name="id", type="bigint"),
        Column(name="day", type="date"),
        Column(name="o'clock", type="string"),
    ]
    partitions = [
        (("day", "2013-01-01"), ("o'clock", "it's 5")),
        (("day", "2013-01-01"), ("o'clock", None)),
        (("day", None), ("o'clock", "6")),
    ]
    assert statements.partition_predicate(columns, partitions) == (
        r"((`day` IN (CAST('2013-01-01' AS date)) AND (`o'clock` IN ('it\'s 5') OR `o'clock` IS NULL))"
        " OR (`day` IS NULL AND `o'clock` IN ('6')))"
    )


def test_a_partition_type_that_is_no_plain_word_is_refused() -> None:
    with pytest.raises(Refused, match="by a column of type"):
        statements.partition_predicate([Column(name="p", type="int) OR (1=1")], [(("p", "1"),)])


def test_a_change_deletes_or_replaces_an_older_row_only() -> None:
    target = statements.MergeTarget(uri="/lake/t", keys=("a",))
    assert statements.merge_changes(
        target, "news", newer="source.`p` > target.`p`", deleted="_deleted"
    ) == (
        "MERGE INTO delta.`/lake/t` AS target USING `news` AS source ON target.`a` <=> source.`a` "
        "WHEN MATCHED AND source.`p` > target.`p` AND source.`_deleted` THEN DELETE "
        "WHEN MATCHED AND source.`p` > target.`p` THEN UPDATE SET * "
        "WHEN NOT MATCHED AND NOT source.`_deleted` THEN INSERT *"
    )
    within = between("a", 1, 7)
    assert between("a", "x'", "y") == "`a` BETWEEN 'x\\'' AND 'y'"
    assert (
        between("a", date(13, 1, 2), date(9999, 12, 31))
        == "`a` BETWEEN DATE'0013-01-02' AND DATE'9999-12-31'"
    )
    summer = datetime(2013, 7, 1, 2, microsecond=5, tzinfo=timezone(timedelta(hours=2)))
    assert between("a", summer, summer).endswith("AND TIMESTAMP'2013-07-01T00:00:00.000005+00:00'")
    target = statements.MergeTarget(uri="/lake/t", keys=("a",), within=(within,))
    marked = statements.merge_marked(
        target, "news", newer="newer", marks_only="_marks_only", mark=("_deleted", "p")
    )
    assert marked == (
        "MERGE INTO delta.`/lake/t` AS target USING `news` AS source ON target.`a` <=> source.`a` "
        "AND target.`a` BETWEEN 1 AND 7 WHEN MATCHED AND newer AND source.`_marks_only` "
        "THEN UPDATE SET `_deleted` = source.`_deleted`, `p` = source.`p` "
        "WHEN MATCHED AND newer THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def test_a_merge_replaces_by_a_newer_row_only() -> None:
    target = statements.MergeTarget(uri="/lake/t", keys=("a", "b"))
    assert statements.merge(target, "news", order_by=("at", "n")) == (
        "MERGE INTO delta.`/lake/t` AS target USING `news` AS source ON target.`a` <=> source.`a` AND target.`b` <=> source.`b` "
        "WHEN MATCHED AND struct(source.`at`, source.`n`) > struct(target.`at`, target.`n`) "
        "THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def test_a_statement_repeats_what_chose_its_victims() -> None:
    assert statements.optimize("/t", "`day` IS NULL") == "OPTIMIZE delta.`/t` WHERE `day` IS NULL"
    assert (
        statements.purge("/t", "`day` IS NULL")
        == "REORG TABLE delta.`/t` WHERE `day` IS NULL APPLY (PURGE)"
    )
    listed = "SELECT path, length, isDir, modificationTime FROM `seen`"
    assert (
        statements.vacuum_dry_run("/t", "seen")
        == f"VACUUM delta.`/t` FULL USING INVENTORY ({listed}) DRY RUN"
    )
