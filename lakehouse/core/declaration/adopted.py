"""The declaration of a table that others write."""

from dataclasses import dataclass
from typing import Literal, get_args

from lakehouse.core.declaration.address import parse_address
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import either

# They check for a version and then write it, which is not atomic.
# Source: delta-io/delta v4.4.0, DelegatingLogStore and the stores themselves
_DELTAS_OWN_STORES = ("io.delta.storage.", "org.apache.spark.sql.delta.storage.")

type_of_writers = Literal["unknown", "none", "conditional"]
type_of_orphans = Literal["keep", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A table at `uri` (an absolute folder or `s3://bucket/folder`) that others write and we
    maintain.

    `writers` says why a compaction cannot overwrite a commit of others: `none` of them commits
    during a compaction; or all of them, and Spark, commit by `conditional` writes. With `unknown`
    writers the table is not compacted. With `orphans="keep"`, files that the log never named stay,
    since they may belong to others. `asset_key` and `pool` are those of the asset of the same
    Dagster project that writes the table, if there is one.
    """

    uri: str
    writers: type_of_writers = "unknown"
    orphans: type_of_orphans = "keep"
    asset_key: tuple[str, ...] = ()
    pool: str = ""

    def __post_init__(self) -> None:
        for name, accepted in (
            ("writers", get_args(type_of_writers)),
            ("orphans", get_args(type_of_orphans)),
        ):
            if getattr(self, name) not in accepted:
                words = either([repr(word) for word in accepted])
                raise Refused(f"Adopted.{name} is {getattr(self, name)!r}. Use {words}.")
        if (address := parse_address(self.uri, base="/")) != self.uri:
            is_near = self.uri.startswith("/") or ":" in self.uri
            expected = repr(address) if is_near else "an absolute folder, or s3://bucket/folder"
            raise Refused(f"Adopted.uri is {self.uri!r}. Use {expected}.")

    @property
    def on_s3(self) -> bool:
        """Whether the table is on S3."""
        return self.uri.startswith("s3://")


def commits_conditionally(log_store: str) -> bool:
    """Whether a log store of this class writes a version only if it does not exist.

    Delta's own stores do not.
    """
    return bool(log_store) and not log_store.startswith(_DELTAS_OWN_STORES)


def commits_at_risk(write: object) -> Explanation | None:
    """Why a compaction's commit could overwrite another one, or `None` if it cannot.

    Source: delta-io/delta v4.4.0, S3SingleDriverLogStore and HDFSLogStore: they check for the
    version, then replace it by a write or rename.
    """
    if not isinstance(write, Adopted) or write.writers != "unknown":
        return None
    return Reason.WRITERS_UNKNOWN.explain(where="S3" if write.on_s3 else "a disk")
