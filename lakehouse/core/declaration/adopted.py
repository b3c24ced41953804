"""The declaration of a table that somebody else writes."""

from dataclasses import dataclass
from typing import Literal, get_args

from lakehouse.core.declaration.address import parse_address
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explanation, Reason

# They look for a version, then write it. Source: delta-io/delta v4.4.0, DelegatingLogStore and the stores themselves
_DELTA_S_OWN = ("io.delta.storage.", "org.apache.spark.sql.delta.storage.")

type_of_writers = Literal["unknown", "none", "conditional"]
type_of_orphans = Literal["keep", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A table at `uri` (an absolute folder or `s3://bucket/folder`) that others write and that is only looked after here.

    `writers` says how their commits are kept from being lost to a compaction's: `none` commits while a compaction runs; all commit by
    `conditional` writes, and so does Spark, by a log store that a person has set; `unknown`: it is not compacted. `orphans`: files that
    the log never told of may be somebody else's, and stay, unless they are said to be the table's own. `asset_key` and `pool` are those of
    the asset that writes it, where that is one of the same Dagster project.
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
                raise Refused(
                    f"Adopted.{name} is {getattr(self, name)!r}; accepted: {', '.join(accepted)}"
                )
        if (address := parse_address(self.uri, base="/")) != self.uri:
            near = (
                repr(address)
                if self.uri.startswith("/") or ":" in self.uri
                else "an absolute folder, or s3://bucket/folder"
            )
            raise Refused(f"Adopted.uri is {self.uri!r}; accepted: {near}")

    @property
    def on_s3(self) -> bool:
        """Whether it lies on S3."""
        return self.uri.startswith("s3://")


def commits_conditionally(log_store: str) -> bool:
    """Whether a log store of this class may be believed to write a version only where there is none; Delta's own ones are not."""
    return bool(log_store) and not log_store.startswith(_DELTA_S_OWN)


def commits_at_risk(write: object) -> Explanation | None:
    """Why a compaction's commit could overwrite somebody else's; `None` where the lake writes the table, or its declaration rules it out.

    Source: delta-io/delta v4.4.0, S3SingleDriverLogStore and HDFSLogStore: a look for the version, then a write or rename that replaces it.
    """
    if not isinstance(write, Adopted) or write.writers != "unknown":
        return None
    return Reason.WRITERS_UNKNOWN.explain(where="S3" if write.on_s3 else "a disk")
