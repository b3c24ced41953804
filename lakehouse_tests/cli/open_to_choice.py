"""One table whose strategy its own past chooses."""

from lakehouse.core.policy import Compaction
from lakehouse.core.strategy import Chosen
from lakehouse.core.table import Append, Landing, Table

orders = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(strategy=Chosen(latency_seconds=3600)),
)
