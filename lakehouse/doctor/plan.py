"""The verdicts of `lakehouse doctor` on facts that its checks have read, and its findings.

Each verdict is a sentence, and a `Doubt` for a warning. If the check fails, `Refused` is raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lakehouse.base.errors import Refused

State = Literal["ok", "warning", "failed", "skipped"]

# If the clocks differ by more than the first limit, the check warns; by more than the second, it
# fails. The second is the limit of `lake/lease.py`, above which no file is deleted.
_CLOCK_WARNED_MS = 30_000
_CLOCK_FAILED_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. `sentence` describes what was found and, if known, what to do."""

    name: str
    state: State
    sentence: str


class Doubt(str):
    """The sentence of a check that warns: this works today, but may fail later."""


def clock_verdict(off_ms: int) -> str:
    """Judges the difference between the clocks. `off_ms` > 0: this machine's clock is ahead."""
    seconds = abs(off_ms) / 1_000
    direction = "ahead of" if off_ms > 0 else "behind"
    if abs(off_ms) <= _CLOCK_WARNED_MS:
        return f"this machine's clock and the storage's differ by {seconds:.0f} s"
    sentence = (
        f"this machine's clock is {seconds:.0f} s {direction} the storage's. Synchronise it with a "
        "time server"
    )
    if abs(off_ms) > _CLOCK_FAILED_MS:
        raise Refused(f"{sentence}; until then, vacuums refuse to delete")
    return Doubt(sentence)


def region_verdict(bucket: str, actual: str | None, named: str | None) -> str:
    """Compares the actual region of a bucket with `named`, the configured region, if any."""
    if not actual:
        return Doubt(f"the server does not report the region of {bucket}")
    if actual == (named or "us-east-1"):
        return f"{bucket} is in {actual}, as configured"
    configured = f"AWS_REGION is {named}" if named else "AWS_REGION is not set"
    raise Refused(
        f"{bucket} is in {actual}, but {configured}; Spark does not follow redirects to another "
        f"region. Use AWS_REGION={actual}"
    )


def versions_verdict(server: Mapping[str, str | None], client: Mapping[str, str]) -> str:
    """Compares the versions of the Spark server with those of this environment.

    Both arguments map `Spark`, `Delta`, … to versions. An unknown version of the server is `None`.
    """
    versions = ", ".join(f"{name} {version or 'unknown'}" for name, version in server.items())
    for name in ("Spark", "Delta"):
        ours = client[name]
        theirs = server.get(name)
        if theirs is None:
            continue
        if _minor(theirs) != _minor(ours):
            raise Refused(
                f"Spark runs {name} {theirs}, but this environment has {name} {ours} ({versions}). "
                f"Use a server with {name} {_minor(ours)}, or install the release of lakehouse "
                f"for {name} {_minor(theirs)}"
            )
    if server.get("Spark") not in (None, client["Spark"]):
        return Doubt(f"{versions}; this environment has Spark {client['Spark']}")
    return versions


def extension_verdict(extensions: str, catalog: str) -> str:
    """Judges Spark's settings `spark.sql.extensions` and `spark.sql.catalog.spark_catalog`."""
    values = {
        "spark.sql.extensions": (extensions, "io.delta.sql.DeltaSparkSessionExtension"),
        "spark.sql.catalog.spark_catalog": (
            catalog,
            "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ),
    }
    for name, (value, required) in values.items():
        if required not in value.split(","):
            raise Refused(
                f"Spark runs without Delta's extension: {name} is {value or 'not set'}. "
                f"Start the server with --conf {name}={required}"
            )
    return "Delta's SQL extension and catalog are set"


def log_store_verdict(log_store: str, *, is_conditional: bool) -> str:
    """Judges how Spark commits to the lake's storage."""
    name = log_store or "Delta's default log store"
    if is_conditional:
        return f"Spark commits through {name}, which creates each version only if it is absent"
    raise Refused(
        f"Spark commits through {name}, which first checks for a version and then writes it, so a "
        "commit could overwrite another one. Start the Spark server with this program's log store "
        "(docs/clusters.md). If the platform that runs the server makes commits safe by itself, "
        "use LAKEHOUSE_LOG_STORE=platform"
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
