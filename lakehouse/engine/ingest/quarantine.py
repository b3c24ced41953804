"""The quarantine table of a landed table: records that are no rows, and files of which nothing was loaded, each with its reason.

**Safety properties**
- A batch's quarantine is one commit under the batch's number, so that a repeat adds nothing.
"""

from typing import TYPE_CHECKING

from lakehouse.core.ingest.batches import Batch
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.parse_lines import quarantined_lines
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = "source_file STRING, line BIGINT, reason STRING, raw STRING, undeclared STRING"


def quarantine_key(table_key: str) -> str:
    """Where the quarantine of a table lies."""
    return f"quarantine/{table_key}"


def quarantine_arrived(lake: Lake, table_key: str, number: int) -> bool:
    """Whether the quarantine of a batch was written."""
    facts = lake.facts(quarantine_key(table_key))
    return facts is not None and facts.snapshot.transactions.get(_app_id(table_key), 0) >= number


def quarantine(lake: Lake, spark: "SparkSession", table_key: str, batch: Batch, lines: "DataFrame | None") -> None:
    """Writes those of `lines` that are no rows, and the files of the batch that a person should look at; a file has no line and no text."""
    from pyspark.sql import functions as F  # noqa: N812

    found = None if lines is None else quarantined_lines(lines)
    if batch.quarantined:
        aside = [(_text(f"{batch.prefix}{each.name}"), None, each.why, None, None) for each in batch.quarantined]
        files = spark.createDataFrame(aside, _SCHEMA)
        found = files if found is None else found.unionByName(files)
    if found is None:
        return
    commit_rows.write_frame(
        found.withColumns({"batch": F.lit(batch.number).cast("bigint"), "quarantined_at": F.current_timestamp()}),
        lake.settings.table_uri(quarantine_key(table_key)),
        mode="append",
        widen=True,
        transaction=commit_rows.Transaction(app_id=_app_id(table_key), version=batch.number),
    )


def _text(name: str) -> str:
    """A file's name; bytes of it that are no UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def _app_id(table_key: str) -> str:
    return f"lakehouse/quarantine/{table_key}"
