"""Finds and reads the files of a source, and writes the project around them.

1. List the files. Files that are private, empty, or have another ending than landed ones, do not
   count.
2. Read some of them, and plan the declaration.
3. Write the project into a temporary folder next to the target: texts, and copies of files on disk.
4. Rename the temporary folder to the target.

**Safety properties** (tests in `init/test_run.py`)
- Nothing but the temporary folder is written or deleted. The source is only read.
- The target appears complete or not at all. A folder that is not empty is never replaced.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from keyword import iskeyword
from math import ceil
from pathlib import Path

from lakehouse.assets.home import TEMPLATE
from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import parse_address, split_bucket
from lakehouse.base.text import count_of
from lakehouse.declare.landing import format_of
from lakehouse.init.plan import Suggestion, package_name, project_texts, suggest, table_name
from lakehouse.land.decode import files_schema
from lakehouse.land.plan.choose_files import may_be_loaded
from lakehouse.land.plan.file_text import detect_format
from lakehouse.land.plan.records import MIB
from lakehouse.store import DiskStore, Store, StoredFile, store_at
from lakehouse.store.disk import translated

_LAKE = ".lakehouse/lake"
_SAMPLED_FILES = 10
# Of a larger file, only a part is read if that shows its schema.
_SAMPLED_BYTES = 8 * MIB


@frozen
class Project:
    """A project that is not written yet, with its package and the root of its lake.

    `copies` are files of `store` by their new paths.
    """

    suggestion: Suggestion
    origin: str
    package: str
    root: str
    texts: Mapping[str, str]
    store: Store
    copies: Mapping[str, StoredFile]


def plan_project(address: str, folder: Path, key: str | None) -> Project:
    """The project to write in `folder`, for a file, a folder, or a folder on S3.

    `key` is the table's. Without it, the names of the file and the folders decide.

    Raises:
        Refused: the files are not of one format, or cannot be read or declared; they are a Delta
            table; or `key` is not of the bronze layer.
    """
    location = parse_address(address, base=os.getcwd())
    *_, parent, last = location.split("/")
    key = key or f"bronze/{table_name([last, parent, folder.name])}"
    layer, _, name = key.partition("/")
    if layer != "bronze" or iskeyword(name):
        raise Refused(f"--table is {key!r}. Use bronze/name; silver/name is made from it")
    files_at = _files_on_s3 if location.startswith("s3://") else _files_on_disk
    store, prefix, listed = files_at(location)
    if not listed:
        raise Refused(f"there is no file at {location}. Check the address")
    files = _of_one_format(listed, address, is_renamed=not prefix)
    step = ceil(len(files) / _SAMPLED_FILES)
    sampled = reversed(files[::-step])  # evenly spread, with the last file
    found = files_schema({file.name: _sample(store, file) for file in sampled})
    names = [file.name for file in files]
    landing = prefix or f"landing/{name}/"
    suggestion = suggest(found, names, key=key, prefix=landing)
    copies = dict[str, StoredFile]()
    if not prefix:
        for file in files:
            ending = "" if format_of(file.name) == found.format else f".{found.format}"
            copies[f"{_LAKE}/{landing}{file.name}{ending}"] = file
    origin = f"{count_of(len(files), 'file')} ({address})"
    package = package_name(folder.name, is_taken=lambda name: find_spec(name) is not None)
    root = f"s3://{store.bucket}/{store.prefix}".rstrip("/") if prefix else _LAKE
    texts = project_texts(suggestion, package=package, root=root, origin=origin)
    texts["dagster.yaml"] = TEMPLATE.read_text()
    return Project(
        suggestion=suggestion,
        origin=origin,
        package=package,
        root=root,
        texts=texts,
        store=store,
        copies=copies,
    )


def check_target(folder: Path) -> None:
    """Refuses a folder that is not new or empty, or cannot be made."""
    with translated(folder, "read"):
        is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free or folder == Path.cwd():
        raise Refused(f"{folder} is not empty. Use the name of a new folder")
    if not folder.parent.is_dir():
        raise Refused(f"{folder.parent} is no folder. Make it first, or use another one")


def write_project(project: Project, folder: Path) -> None:
    """Writes the project, which then is in `folder`.

    Raises:
        Refused, Transient: it cannot be written, or the folder is not empty now.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    store = DiskStore(temporary)
    try:
        for path, text in project.texts.items():
            store.put(path, text.encode())
        for path, file in project.copies.items():
            store.copy(file, path, of=project.store)
        with translated(folder, "write"):
            temporary.rename(folder)  # fails if there are files by now
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files_on_disk(location: str) -> tuple[Store, str, list[StoredFile]]:
    """The store with the files of a folder, or with one file. They are not below a lake's root."""
    path = Path(location).resolve()
    if path.is_dir():
        store = store_at(str(path))
        return store, "", store.list("")
    store = store_at(str(path.parent))
    file = store.stat(path.name)
    return store, "", [file] if file else []


def _files_on_s3(location: str) -> tuple[Store, str, list[StoredFile]]:
    """The store with the files of a folder, or of an object's folder, and that folder in it.

    The store's root is the folder above, or above a folder `landing`.
    """
    bucket, key = split_bucket(location)
    parts = key.split("/")
    if key and store_at(f"s3://{bucket}").stat(key):
        parts.pop()
    if not any(parts):
        raise Refused(f"{location} is no folder of a bucket. Use s3://bucket/folder")
    first = parts.index("landing") if "landing" in parts else len(parts) - 1
    store = store_at("/".join((f"s3://{bucket}", *parts[:first])))
    prefix = "/".join((*parts[first:], ""))
    return store, prefix, store.list(prefix)


def _of_one_format(
    files: Sequence[StoredFile], address: str, *, is_renamed: bool
) -> list[StoredFile]:
    """The files that are not private or empty, and have the ending of a format.

    If none has one and `is_renamed` is set, all of them: their copies will have it.
    """
    if any("_delta_log/" in file.name for file in files):
        raise Refused(f"{address} is a Delta table. Use: lakehouse adopt {address}")
    public = [file for file in files if file.size_bytes and may_be_loaded(file.name, "")]
    by_format = dict[str, list[StoredFile]]()
    for file in public:
        by_format.setdefault(format_of(file.name) or "", []).append(file)
    unknown = by_format.pop("", [])
    if len(by_format) > 1:
        counts = [f"{len(some)} {name} ({some[0].name})" for name, some in by_format.items()]
        raise Refused(
            f"{address} has files of several formats: {', '.join(counts)}. A table has one format: "
            "use a folder with files of one format, or name one file"
        )
    chosen = next(iter(by_format.values()), unknown if is_renamed else [])
    if not chosen:
        raise Refused(
            f"{address} has no file of a known format. Use a file, a folder or s3://bucket/folder, "
            "with names that end in .csv, .json, .parquet or .avro"
        )
    return chosen


def _sample(store: Store, file: StoredFile) -> bytes:
    """The bytes of a file, or the part of a large one that shows its schema."""
    if file.size_bytes <= _SAMPLED_BYTES:
        return store.read(file.name)
    start = store.read_part(file.name, 0, _SAMPLED_BYTES)
    if detect_format(start) == "Parquet":  # it has the schema at its end
        return start[:16] + store.read_part(file.name, -_SAMPLED_BYTES, _SAMPLED_BYTES)
    if detect_format(start) or start[:1] in b"[\xff\xfe":  # packed, a JSON array, or UTF-16
        return store.read(file.name)
    return start[: start.rfind(b"\n") + 1]
