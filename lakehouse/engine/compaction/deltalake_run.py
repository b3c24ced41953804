"""Compacts a table with deltalake, and undoes that: no Spark session, no Java.

deltalake 1.6.6 commits an OPTIMIZE although another OPTIMIZE has replaced the same files since, and
so doubles their rows. It also ignores the number of retries that it is given. So deltalake rewrites
the planned files only, in a workshop: a folder of this machine with a log of its own. This module
commits.

1. The workshop gets the table's metadata, and the planned files in their order: by links to a
   disk, downloaded from S3. They have plain names there, since deltalake changes the spelling of a
   path in a log, like `ä` to `%C3%A4`. An entry above the target ends each bin.
2. deltalake compacts the workshop. Its commit names the files that it wrote. Planned files that
   Spark reads in another way are refused, and doubtful statistics are omitted (`rewritten_files`).
3. These files are copied into the table's folder (`delivered_files`).
4. The commit, with the plan's figures, creates the next version if that does not exist. Otherwise
   the log is read again. If all planned files are still live and the table's metadata are the same,
   the version after the newest one is tried.

**Safety properties** (tests in `test_deltalake_run.py`)
- A commit never overwrites another one, and never removes a file that another writer has removed.
- A commit spells the paths of removed files as the table's log does. With another spelling the
  files stay live, and their rows are doubled.
- The files of step 3 are not deleted if the log names one of them, although the storage reported
  that another writer was faster.
- A workshop that a killed run left is emptied by the table's next one. Nothing behind its links is
  deleted.
- An undo commits directly after the version that was found to be wrong, or not at all.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.errors import Transient
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.delivered_files import (
    CommitFailedError,
    Place,
    delivered,
    workshop_of,
)
from lakehouse.engine.compaction.rewritten_files import (
    refuse_misread,
    sound_statistics,
    writer_properties,
)
from lakehouse.engine.deltalake_tables import (
    open_same_table,
    panics_translated,
    protocol_and_metadata,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, MountedStore, S3Store, Store, store_at
from lakehouse.engine.store.s3_objects import download

Actions = list[dict[str, Any]]
Inputs = Mapping[str, DataFile]
# The name of the table's folder in the workshop. Paths that deltalake cannot spell in another way
# are read through it; a link for each of a thousand files takes longer than all of the rest.
_LINK = "table"
_PLAIN_PATH = re.compile(r"([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")
# Each lost version costs one more reading of the log.
_VERSIONS_TRIED = 50


def compact_in_log_order(
    lake: Lake, snapshot: Snapshot, planned: CompactionPlan, user_metadata: str
) -> None:
    """Rewrites the planned files, and commits that with `user_metadata`.

    Raises:
        CommitFailedError: another writer changed planned files or the table itself.
    """
    with _workshop(lake, snapshot.table) as folder:
        place = _place_of(lake, snapshot.table)
        inputs = _inputs(planned, place[0])
        _bring(inputs, folder, place, Path(lake.table_uri(snapshot.table)).absolute())
        with panics_translated(f"compaction of {snapshot.table}"):
            _describe(inputs, folder, planned, protocol_and_metadata(lake, snapshot))
            actions = _rewritten(inputs, folder, planned, user_metadata)
        written = [Path(unquote(action["add"]["path"])) for action in actions if "add" in action]
        paths_in_log = {folder / inside: file.path for inside, file in inputs.items()}
        refuse_misread(snapshot.table, paths_in_log, [folder / file for file in written])
        with delivered(lake, snapshot, written, place):
            _commit(lake, snapshot, planned, actions, place)


def restore_after(lake: Lake, before: Snapshot, newest: int, user_metadata: str) -> None:
    """Restores the version of `before` as the version after `newest`, and as no other version."""
    from deltalake import CommitProperties

    properties = CommitProperties(custom_metadata={"userMetadata": user_metadata})
    with panics_translated(f"RESTORE of {before.table}"):
        table = open_same_table(lake, before, version=newest)
        table.restore(before.version, commit_properties=properties)


@contextmanager
def _workshop(lake: Lake, key: str) -> Iterator[Path]:
    """An empty folder, removed after the block. The caller holds the table's lock."""
    folder = workshop_of(lake, key)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "_delta_log").mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _inputs(planned: CompactionPlan, store: Store) -> Inputs:
    """The planned files in their order, by their names in the workshop."""
    files = [file for bin_ in planned.bins for file in bin_.files]
    on_disk = not isinstance(store, S3Store)
    return {
        f"{_LINK}/{file.path}"
        if on_disk and _PLAIN_PATH.fullmatch(file.path)
        else f"input-{place}.parquet": file
        for place, file in enumerate(files)
    }


def _bring(inputs: Inputs, folder: Path, place: Place, root: Path) -> None:
    """Step 1: the files. `root` is the table's folder, if it is on a disk."""
    store, prefix = place
    if isinstance(store, S3Store):
        names = [f"{prefix}{unquote(file.path)}" for file in inputs.values()]
        download(store, names, [folder / inside for inside in inputs])
        return
    (folder / _LINK).symlink_to(root)
    for inside, file in inputs.items():
        if not inside.startswith(f"{_LINK}/"):
            (folder / inside).symlink_to(root / unquote(file.path))


def _describe(inputs: Inputs, folder: Path, planned: CompactionPlan, actions: Actions) -> None:
    """Step 1: the log, which begins with `actions`."""
    waiting = iter(inputs.items())
    for place, bin_ in enumerate(planned.bins):
        for inside, file in islice(waiting, len(bin_.files)):
            actions.append(_added(inside, file, file.size_bytes))
        # Skipped as too large, and never opened.
        too_large = planned.statement.up_to_bytes + 1
        actions.append(_added(f"end-of-bin-{place}", bin_.files[0], too_large))
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(_encoded(actions))


def _added(path: str, file: DataFile, size_bytes: int) -> dict[str, Any]:
    add = {
        "path": path,
        "partitionValues": dict(file.partition),
        "size": size_bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
    }
    if file.row_count is not None:
        add["stats"] = json.dumps({"numRecords": file.row_count})
    return {"add": add}


def _rewritten(
    inputs: Inputs, folder: Path, planned: CompactionPlan, user_metadata: str
) -> Actions:
    """Step 2: the actions of deltalake's commit, as those of a commit to the table."""
    from deltalake import DeltaTable

    table = DeltaTable(folder.absolute().as_uri())
    fields = json.loads(table.schema().to_json())["fields"]
    table.optimize.compact(
        target_size=planned.statement.up_to_bytes, writer_properties=writer_properties(fields)
    )
    lines = (folder / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    actions: Actions = []
    for action in map(json.loads, lines):
        kind, values = next(iter(action.items()))
        known = {name: value for name, value in values.items() if value is not None}
        if kind == "commitInfo":
            of_plan = {"readVersion": planned.version, "userMetadata": user_metadata}
            known |= of_plan | {"timestamp": now_ms()}
        elif kind == "remove":
            known["path"] = inputs[known["path"]].path
        elif kind == "add" and "stats" in known:
            known["stats"] = json.dumps(sound_statistics(json.loads(known["stats"]), fields))
        actions.append({kind: known})
    return actions


def _commit(
    lake: Lake,
    before: Snapshot,
    planned: CompactionPlan,
    actions: Actions,
    place: Place,
) -> None:
    """Step 4."""
    store, prefix = place
    paths = {file.path for bin_ in planned.bins for file in bin_.files}
    added = {action["add"]["path"] for action in actions if "add" in action}
    content = _encoded(actions)
    version = before.version
    for _ in range(_VERSIONS_TRIED):
        if store.put_if_absent(f"{prefix}_delta_log/{version + 1:020}.json", content):
            return
        facts = lake.facts(before.table)
        newest = before if facts is None else facts.snapshot
        if newest.version <= version:
            raise Transient(
                f"compaction of {before.table}: version {version + 1} exists, but the log does not "
                "show it; try again"
            )
        known = (*newest.files, *newest.tombstones)
        if not added.isdisjoint(file.path for file in known):
            return  # the version that exists is ours, whatever the storage said
        if _shape(newest) != _shape(before):
            raise CommitFailedError("another writer changed the table's metadata or protocol")
        if gone := paths - _live_paths(newest.files):
            raise CommitFailedError(f"another writer removed {len(gone)} of the planned files")
        version = newest.version
    raise CommitFailedError(f"other writers were faster {_VERSIONS_TRIED} times")


def _live_paths(files: Sequence[DataFile]) -> set[str]:
    return {file.path for file in files if file.deletion_vector is None}


def _shape(snapshot: Snapshot) -> tuple[object, ...]:
    """What must not change between the plan and the commit."""
    return (
        snapshot.table_id,
        snapshot.columns,
        snapshot.partition_columns,
        snapshot.features,
        snapshot.properties,
    )


def _place_of(lake: Lake, key: str) -> Place:
    """Where the table lies. A store of mounts would not write into a table of other programs."""
    store = lake.store
    folder = key
    if isinstance(store, MountedStore):
        is_mounted = key in store.mounts
        store, folder = store.place_of(key)
        if is_mounted and isinstance(store, S3Store):
            # The rights may end at the table's folder, and the store writes below its own prefix.
            store = store_at(f"s3://{store.bucket}/{folder}")
            folder = ""
    assert isinstance(store, DiskStore | S3Store)
    return store, f"{folder}/" if folder else ""


def _encoded(actions: Iterable[Mapping[str, Any]]) -> bytes:
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
