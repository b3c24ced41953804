"""Features that only S3 has: lifecycle rules, tags and storage classes.

Each function sends its requests through the store's client, which counts and retries requests.

**Safety properties** (tests in `test_s3_objects.py`)
- A missing permission raises `Refused`, which names the action to grant. A function never returns
  an empty result instead.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from lakehouse.base.stored_objects import LifecycleRule, parse_rules
from lakehouse.store.disk import MountedStore
from lakehouse.store.interface import Store
from lakehouse.store.s3 import S3Store
from lakehouse.store.s3_client import READERS, answer_of, translated_s3

_PIECE_BYTES = 1024 * 1024
# The size of the parts of an upload. S3 accepts at most 10,000 parts.
_PART_BYTES = 64 * 1024 * 1024
# How an error message describes each action that failed.
_FAILURES = {
    "read": "cannot read the content",
    "write": "cannot write the content",
    "lifecycle": "cannot read the lifecycle rules",
    "tags": "cannot read the tags",
    "put tags": "cannot write the tags",
}


def s3_place(store: Store, name: str) -> tuple[S3Store, str] | None:
    """The real S3 store of a name, and the name in that store; `None` if the name is on a disk."""
    if isinstance(store, MountedStore):
        store, name = store.place_of(name)
    return (store, name) if isinstance(store, S3Store) else None


def download(store: S3Store, names: Sequence[str], paths: Sequence[Path]) -> None:
    """Writes each object, with one request and in pieces, to the path at the same position."""

    def fetch(name: str, path: Path) -> None:
        with _translated(store, "read", name), path.open("wb") as file:
            answer = store.client.get_object(Bucket=store.bucket, Key=store.prefix + name)
            for piece in answer["Body"].iter_chunks(_PIECE_BYTES):
                file.write(piece)

    with ThreadPoolExecutor(max_workers=READERS) as pool:
        for _ in pool.map(fetch, names, paths):
            pass


def upload(path: Path, store: S3Store, name: str) -> None:
    """Writes a file to an object. A large file is written in parts, and never held in memory."""
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig

    parts = TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES)
    with _translated(store, "write", name):
        try:
            store.client.upload_file(str(path), store.bucket, store.prefix + name, Config=parts)
        except S3UploadFailedError as error:
            # boto3 raises it from botocore's error, which `_translated` understands.
            raise error.__context__ or error from None


def read_lifecycle(store: S3Store) -> tuple[LifecycleRule, ...]:
    """The enabled lifecycle rules of the store's bucket.

    Raises:
        Refused: the permission is missing, or the server does not support lifecycle rules.
    """
    from botocore.exceptions import ClientError

    with _translated(store, "lifecycle"):
        try:
            answer = store.client.get_bucket_lifecycle_configuration(Bucket=store.bucket)
        except ClientError as error:
            if answer_of(error).code != "NoSuchLifecycleConfiguration":
                raise
            answer = {}
    return parse_rules(answer)


def tags_of(store: S3Store, name: str) -> dict[str, str]:
    """The tags of an object; raises FileNotFoundError if it does not exist."""
    with _translated(store, "tags", name):
        answer = store.client.get_object_tagging(Bucket=store.bucket, Key=store.prefix + name)
    return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}


def set_tag(store: S3Store, name: str, tag: str, value: str | None) -> bool:
    """Sets one tag of an object, or removes it (`None`). The other tags stay.

    Returns whether anything changed. Raises FileNotFoundError if the object does not exist.
    """
    tags = tags_of(store, name)
    new_tags = {key: text for key, text in tags.items() if key != tag}
    if value is not None:
        new_tags[tag] = value
    if new_tags == tags:
        return False
    target = {"Bucket": store.bucket, "Key": store.prefix + name}
    tag_set = [{"Key": key, "Value": text} for key, text in new_tags.items()]
    with _translated(store, "put tags", name):
        if tag_set:
            store.client.put_object_tagging(**target, Tagging={"TagSet": tag_set})
        else:
            store.client.delete_object_tagging(**target)
    return True


@contextmanager
def _translated(store: S3Store, action: str, name: str | None = None) -> Iterator[None]:
    key = "" if name is None else f"/{store.prefix}{name}"
    with translated_s3(f"store: {_FAILURES[action]} of s3://{store.bucket}{key}", action):
        yield
