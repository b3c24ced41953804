"""The manifest of a landed batch, as it lies in the journal.

A JSON object: the batch's number, the prefix below which its files lie, the files with size, time and digest, the files set aside with
their reasons, how many records are staged, and in how many files. Every 64th also carries every file known so far. Older manifests tell no
prefix, no digests and no staging.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, KnownFile, LandedFile, Ledger, SetAside

# A ledger costs at most so many reads, however long the lake has run.
SNAPSHOT_EVERY = 64


def encode_manifest(batch: Batch, ledger: Ledger | None) -> bytes:
    """The manifest of a batch; with the `ledger` up to it, it carries that."""
    content: dict[str, Any] = asdict(batch)
    if ledger is not None:
        known = {path: [each.size_bytes, each.modified_ms, each.digest, each.is_taken] for path, each in ledger.seen.items()}
        content |= {"seen": known, "last_taken": ledger.last_taken}
    return encoded(content)


def decode_manifest(data: bytes, name: str, *, number: int, prefix: str) -> tuple[Batch, Ledger | None]:
    """The batch of a manifest, and the ledger that it carries. A manifest that tells no prefix means files below `prefix`.

    Raises:
        Broken: it is damaged, or of another number.
    """
    try:
        content = json.loads(data)
        own = content.get("prefix", "")
        batch = Batch(
            number=content["number"],
            files=tuple(LandedFile(**file) for file in content["files"]),
            set_aside=tuple(SetAside(**aside) for aside in content["set_aside"]),
            prefix=own or prefix,
            part_count=content.get("part_count"),
            record_count=content.get("record_count"),
        )
        carried = None
        if number % SNAPSHOT_EVERY == 0:
            before, last_taken = "" if own else prefix, str(content.get("last_taken", ""))
            seen = {f"{before}{path}": _known(each) for path, each in content["seen"].items()}
            carried = Ledger(newest=batch, seen=seen, last_taken=f"{before}{last_taken}" if last_taken else "")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, error) from error
    if batch.number != number:
        raise Broken(f"journal: {name} holds batch {batch.number}; restore it from a copy of the lake")
    return batch, carried


def with_batch(batch: Batch, before: Ledger) -> Ledger:
    """The ledger with a batch more. A file that was taken stays taken, also where it was set aside later because it had changed."""
    seen = {**before.seen}
    for aside in batch.set_aside:
        path = f"{batch.prefix}{aside.name}"
        now = KnownFile(size_bytes=aside.size_bytes, modified_ms=aside.modified_ms, digest=aside.digest, is_taken=False)
        seen[path] = replace(now, is_taken=path in seen and seen[path].is_taken)
    taken = {f"{batch.prefix}{file.name}": file for file in batch.files}
    for path, file in taken.items():
        seen[path] = KnownFile(size_bytes=file.size_bytes, modified_ms=file.modified_ms, digest=file.digest)
    return Ledger(newest=batch, seen=seen, last_taken=max([before.last_taken, *taken]))


def encoded(content: Mapping[str, Any]) -> bytes:
    """A record as the journal writes it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def damaged(name: str, error: Exception) -> Broken:
    """The error for a record of the journal that cannot be read."""
    return Broken(f"journal: {name} cannot be read ({type(error).__name__}: {error}); restore it from a copy of the lake")


def _known(content: int | list[Any]) -> KnownFile:
    """What a snapshot says of a file; an older one knows its size alone."""
    if isinstance(content, int):
        return KnownFile(size_bytes=content)
    size_bytes, modified_ms, digest, is_taken = content
    return KnownFile(size_bytes=size_bytes, modified_ms=modified_ms, digest=digest, is_taken=is_taken)
