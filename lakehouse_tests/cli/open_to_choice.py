"""One table whose strategy its own past chooses."""

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import Chosen
from lakehouse.core.declaration.table import Append, Landing, Table

orders = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(strategy=Chosen(latency_seconds=3600)),
)
