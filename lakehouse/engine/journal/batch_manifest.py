"""The JSON documents of the ledger: a manifest per landed batch, and segments of folded manifests.

A manifest has the fields of a `Batch`, and a segment has the fields of a `LedgerSegment`. A segment
stores all its fingerprints as one Base64 text.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from typing import Any

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import FINGERPRINT_BYTES, Batch, LandedFile, SetAside
from lakehouse.core.ingest.ledger_segments import LedgerSegment
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.journal.records import damaged, encoded

# Fields of a `LandedFile` that are set for few files. A document omits them if they are not set.
_RARE = ("text_bytes", "text_digest", "loaded_records", "by_spark", "blocks")


def encode_manifest(batch: Batch) -> bytes:
    """The content of a batch's manifest."""
    return encoded(_document(batch))


def decode_manifest(data: bytes, name: str, *, number: int) -> Batch:
    """The batch in a manifest's content.

    Raises:
        Broken: the manifest is damaged, or its batch has another number.
    """
    try:
        batch = _batch(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, error) from error
    if batch.number != number:
        raise Broken(
            f"journal: {name} holds batch {batch.number} instead of {number}. Restore it from a "
            "copy of the lake"
        )
    return batch


def encode_segment(segment: LedgerSegment) -> bytes:
    """The content of a segment's object."""
    forgotten = b64encode(b"".join(sorted(segment.forgotten))).decode()
    return encoded({**_document(replace(segment, forgotten=frozenset())), "forgotten": forgotten})


def decode_segment(data: bytes, name: str, *, number: int) -> LedgerSegment:
    """The segment in an object's content.

    Raises:
        Broken: the object is damaged, or its segment has another number.
    """
    try:
        content = json.loads(data)
        fingerprints = b64decode(content["forgotten"], validate=True)
        starts = range(0, len(fingerprints), FINGERPRINT_BYTES)
        segment = LedgerSegment(
            number=content["number"],
            batches=tuple(_batch(each) for each in content["batches"]),
            last_taken=content["last_taken"],
            forgotten=frozenset(
                fingerprints[start : start + FINGERPRINT_BYTES] for start in starts
            ),
            forgotten_batch=content["forgotten_batch"],
            columns=_columns(content),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, error) from error
    if segment.number != number:
        raise Broken(
            f"journal: {name} holds the batches up to {segment.number} instead of {number}. "
            "Restore it from a copy of the lake"
        )
    return segment


def _document(record: Batch | LedgerSegment) -> dict[str, Any]:
    def fields_of(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in items if value or name not in _RARE}

    return asdict(record, dict_factory=fields_of)


def _batch(content: dict[str, Any]) -> Batch:
    simple = ("number", "prefix", "part_count", "record_count", "shape")
    return Batch(
        **{name: content[name] for name in simple},
        files=tuple(_landed_file(file) for file in content["files"]),
        set_aside=tuple(SetAside(**aside) for aside in content["set_aside"]),
        columns=_columns(content),
    )


def _landed_file(content: dict[str, Any]) -> LandedFile:
    blocks = tuple((lines, records) for lines, records in content.get("blocks", ()))
    return LandedFile(**{**content, "blocks": blocks})


def _columns(content: dict[str, Any]) -> tuple[AddedColumn, ...]:
    return tuple(AddedColumn(**column) for column in content["columns"])
