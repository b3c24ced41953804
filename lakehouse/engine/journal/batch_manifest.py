"""The form of a landed batch's manifest in the journal, and of the segment that manifests are folded into.

A manifest is a JSON object: the batch's number, the prefix below which its files lie, the files with size, time and digest, the files set
aside with their reasons, how many records are staged, in how many files, and which files were taken out of it again. Older manifests tell
no prefix, no digests and no staging, and every 64th of them also carries every file known so far. A segment is an object with a list of
manifests.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from typing import Any

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import (
    FINGERPRINT_BYTES,
    Batch,
    KnownFile,
    LandedFile,
    Ledger,
    SetAside,
)
from lakehouse.core.ingest.ledger_segments import LedgerSegment
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.journal.records import damaged, encoded

# Every manifest of an older program whose number is a multiple of this carries all files known so far.
SNAPSHOT_EVERY = 64
_RARE = ("text_bytes", "text_digest", "loaded_records")


def encode_manifest(batch: Batch) -> bytes:
    """The manifest of a batch."""
    return encoded(_document(batch))


def decode_manifest(
    data: bytes, name: str, *, number: int, prefix: str
) -> tuple[Batch, Ledger | None]:
    """The batch of a manifest, and the ledger that an older one carries. A manifest that tells no prefix means files below `prefix`.

    Raises:
        Broken: it is damaged, or of another number.
    """
    try:
        content = json.loads(data)
        batch, carried = _batch(content, prefix), None
        # Only manifests of today tell a digest or a staging; one of theirs that carries nothing is damaged.
        if number % SNAPSHOT_EVERY == 0 and ("seen" in content or "part_count" not in content):
            before, last_taken = (
                "" if content.get("prefix") else prefix,
                str(content.get("last_taken", "")),
            )
            seen = {f"{before}{path}": _known(each) for path, each in content["seen"].items()}
            carried = Ledger(
                newest=batch, seen=seen, last_taken=f"{before}{last_taken}" if last_taken else ""
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, error) from error
    if batch.number != number:
        raise Broken(
            f"journal: {name} holds batch {batch.number}; restore it from a copy of the lake"
        )
    return batch, carried


def encode_segment(segment: LedgerSegment) -> bytes:
    """The object of a segment; its fingerprints are one text, in order."""
    forgotten = b64encode(b"".join(sorted(segment.forgotten))).decode()
    return encoded({**_document(replace(segment, forgotten=frozenset())), "forgotten": forgotten})


def decode_segment(data: bytes, name: str, *, number: int) -> LedgerSegment:
    """The segment of an object; raises as `decode_manifest`."""
    try:
        content = json.loads(data)
        marks = b64decode(content["forgotten"], validate=True)
        starts = range(0, len(marks), FINGERPRINT_BYTES)
        segment = LedgerSegment(
            number=content["number"],
            batches=tuple(_batch(each, "") for each in content["batches"]),
            last_taken=content["last_taken"],
            forgotten=frozenset(marks[start : start + FINGERPRINT_BYTES] for start in starts),
            forgotten_batch=content["forgotten_batch"],
            columns=_columns(content),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, error) from error
    if segment.number != number:
        raise Broken(
            f"journal: {name} holds the batches up to {segment.number}; restore it from a copy of the lake"
        )
    return segment


def _document(record: Batch | LedgerSegment) -> dict[str, Any]:
    """The fields of a record; of a file, those that few files have are left out where they tell nothing."""

    def fields_of(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in items if value or name not in _RARE}

    return asdict(record, dict_factory=fields_of)


def _batch(content: dict[str, Any], prefix: str) -> Batch:
    return Batch(
        number=content["number"],
        files=tuple(LandedFile(**file) for file in content["files"]),
        set_aside=tuple(SetAside(**aside) for aside in content["set_aside"]),
        prefix=content.get("prefix") or prefix,
        part_count=content.get("part_count"),
        record_count=content.get("record_count"),
        refused_count=content.get("refused_count"),
        columns=_columns(content),
        isolated=tuple(tuple(names) for names in content.get("isolated", ())),
        shape=content.get("shape", ""),
    )


def _columns(content: dict[str, Any]) -> tuple[AddedColumn, ...]:
    return tuple(AddedColumn(**column) for column in content.get("columns", ()))


def _known(content: int | list[Any]) -> KnownFile:
    """A file as a snapshot tells of it; an older one knows its size alone."""
    if isinstance(content, int):
        return KnownFile(size_bytes=content)
    size_bytes, modified_ms, digest, is_taken = content
    return KnownFile(
        size_bytes=size_bytes, modified_ms=modified_ms, digest=digest, is_taken=is_taken
    )
