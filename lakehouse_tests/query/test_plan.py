import pytest

from lakehouse.base.errors import Refused
from lakehouse.query.plan import QueryPlan, plan_query

KEYS = {
    "gold/daily": "gold/daily",
    "silver/orders": "silver/old_orders",  # declared with location=
    "quarantine/bronze/orders": "quarantine/bronze/orders",
    "inventory/my-b.ucket": "inventory/my-b.ucket",
}


def planned(statement: str) -> QueryPlan:
    return plan_query(statement, KEYS)


def test_only_whole_names_of_tables_outside_of_strings_and_comments_are_tables() -> None:
    plan = planned(
        """
        WITH daily AS (SELECT 'silver.orders' AS text FROM GOLD."daily")  -- silver.orders
        SELECT d.text, gold.daily.x /* silver.orders */ FROM daily d
        JOIN quarantine . bronze.orders JOIN inventory."my-b.ucket" ON 'it''s silver.orders' = d.text
        """
    )
    expected = ["gold/daily", "quarantine/bronze/orders", "inventory/my-b.ucket"]
    assert [table.key for table in plan.tables] == expected
    assert planned("SELECT * FROM silver.orders").tables[0].key == "silver/old_orders"


def test_each_version_of_a_table_has_a_name_of_its_own() -> None:
    plan = planned(
        "SELECT * FROM gold.daily a, gold.daily FOR VERSION AS OF 3 b, gold.daily version as of 0 c, "
        'inventory."my-b.ucket", quarantine.bronze.orders'
    )
    assert plan.with_names(lambda table: table.quoted_name) == (
        'SELECT * FROM "gold"."daily" a, "gold"."daily@3" b, "gold"."daily@0" c, '
        '"inventory"."my-b.ucket", "quarantine/bronze"."orders"'
    )


@pytest.mark.parametrize(
    "statement",
    [
        "select 1;",
        "(SELECT 1) UNION (SELECT 2)",
        """WITH x AS (SELECT 'insert' AS "update") SELECT "update", x.delete FROM x -- merge""",
        "desc gold.daily",
    ],
)
def test_what_only_reads_is_accepted(statement: str) -> None:
    assert planned(statement).statement == statement


@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        ("INSERT INTO gold.daily SELECT 1", "INSERT"),
        ("/* SELECT */ drop table gold.daily", "DROP"),
        ("WITH x AS (SELECT 1) INSERT INTO gold.daily SELECT * FROM x", "INSERT"),
        ("WITH x AS (SELECT 1) DELETE FROM gold.daily", "DELETE"),
        ("WITH x AS (SELECT 1) FROM x INSERT OVERWRITE gold.daily SELECT *", "INSERT"),
        ("SELECT 1 INTO x", "INTO"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN"),
        ("COPY (SELECT 1) TO '/tmp/x'", "COPY"),
        ("SHOW COLUMNS FROM gold.daily", "SHOW"),
        ("SET a = b", "SET"),
        ("-- SELECT 1", "an empty statement"),
    ],
)
def test_what_writes_is_refused_by_its_verb(statement: str, verb: str) -> None:
    with pytest.raises(Refused, match=f"^sql: {verb} is refused. This command only reads"):
        planned(statement)
