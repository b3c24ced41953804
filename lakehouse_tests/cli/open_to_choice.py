"""One table whose strategy its own past chooses."""

from lakehouse import Append, Chosen, Compaction, Landing, Table

orders = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(strategy=Chosen(latency_seconds=3600)),
)
