"""A store in an S3 bucket, or in a server that speaks its protocol.

**Safety properties** (tests in `test_store.py`)
- `put_if_absent` is S3's conditional write. If the name is taken, the object's metadata shows
  whether an earlier attempt of the same call wrote it. So a lost response does not look like a
  write by another program.
- If the server ignores the condition, `put_if_absent` is refused before it could overwrite.
- `delete` and `delete_each` also read the errors of single keys in a successful response.
- A missing permission raises `Refused`, which names the action to grant. A function never returns
  an empty result instead (`test_s3_objects.py`).

Region, endpoint, profile and attempts come from the AWS_ variables (`client_options`). boto3 itself
finds the access keys, and is loaded by the first request.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from lakehouse.base.clock import pause_about
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.installation import require
from lakehouse.base.settings import s3_endpoint, s3_region
from lakehouse.base.stored_objects import LifecycleRule, parse_rules
from lakehouse.store.interface import (
    REQUESTS_AT_ONCE,
    ArchivedError,
    Store,
    StoredFile,
    TimeBudget,
    at_once,
    checked_name,
    folder_prefix,
)

ListedObject = Mapping[str, Any]

_PIECE_BYTES = 1024 * 1024
# The size of the parts of an upload. S3 accepts at most 10,000 parts.
_PART_BYTES = 64 * 1024 * 1024
# Source: AWS, DeleteObjects: "The request can contain a list of up to 1,000 keys".
_DELETE_BATCH = 1_000
# The average pause before each attempt.
_PAUSES_SECONDS = (0.0, 0.1, 0.3, 0.9, 2.7)
# An empty object. `honours_conditions` tries to create it although it exists, which has to fail.
TAKEN = "_lakehouse/taken"
_ATTEMPTS = 3  # botocore's default in its standard mode
# Error codes of temporary failures: the same request may succeed later.
PASSING = frozenset(
    {
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
        "RequestTimeout",
        "Throttling",
        "OperationAborted",
    }
)
# The HTTP status of a server that lacks the operation. A retry cannot fix this.
_NOT_IMPLEMENTED = 501
# Error codes for a condition that is not met.
_NOT_MET = ("PreconditionFailed", "412")
# The permission that an action needs. Error messages name the action by its key.
PERMISSIONS = {
    "list": "s3:ListBucket",
    "read": "s3:GetObject (and s3:ListBucket)",
    "write": "s3:PutObject",
    "copy": "s3:PutObject and s3:GetObject (and s3:GetObjectTagging for objects with tags)",
    "delete": "s3:DeleteObject",
    "read the lifecycle rules of": "s3:GetLifecycleConfiguration",
    "read the tags of": "s3:GetObjectTagging",
    "write the tags of": "s3:PutObjectTagging and s3:DeleteObjectTagging",
}
# Matches the part of a URL after its host, to remove it from error messages: it may contain a
# signature.
_REQUEST = re.compile(r'(?<=\w)/[^\s"]*(?=")')


def client_options(environ: Mapping[str, str]) -> dict[str, Any]:
    """The options of `s3_client` that the AWS_ variables set, under the names of dagster-aws."""
    return {
        "region_name": s3_region(environ),
        "endpoint_url": s3_endpoint(environ),
        "profile_name": environ.get("AWS_PROFILE") or None,
        "max_attempts": int(environ.get("AWS_MAX_ATTEMPTS") or _ATTEMPTS),
    }


def client_from_environ(**options: Any) -> Any:
    """A client with the options that the AWS_ variables set, replaced by `options`."""
    return s3_client(**client_options(os.environ) | options)


def s3_client(
    *,
    endpoint_url: str | None,
    max_attempts: int,
    connect_seconds: float = 5,
    read_seconds: float = 60,
    **session: Any,
) -> Any:
    """The boto3 client for a store. Several threads may use the same client.

    The seconds limit the wait for a connection and for each answer. `session` are options of
    boto3's session.
    """
    require("boto3", extra="s3", purpose="a lake on S3")
    import boto3
    from botocore.config import Config

    # Some S3 servers do not support trailing checksums. With TLS, they are not needed.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": max_attempts},
        max_pool_connections=2 * REQUESTS_AT_ONCE,  # for two callers
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session(**session).client("s3", endpoint_url=endpoint_url, config=config)


def code_of(error: Any) -> str:
    """The error code in a ClientError of botocore."""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_of_answer(error: Any, where: str, action: str) -> Exception:
    """The error to raise for a failed action; FileNotFoundError for a missing key."""
    code = code_of(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in ("NoSuchKey", "404"):
        return FileNotFoundError(where)
    if code == "NoSuchBucket":
        return Refused(f"{where}: there is no such bucket. Create it first, or correct its name")
    if code in _NOT_MET:
        return Transient(f"{where}: the object was written again meanwhile; try again")
    is_server_error = status >= 500 and status != _NOT_IMPLEMENTED
    if code in PASSING or is_server_error or status == 429:
        return Transient(f"{where}: S3 answers {code} ({status}); try again")
    if code == "InvalidObjectState":
        details = error.response["Error"]
        storage_class = details.get("StorageClass", "unknown")
        if tier := details.get("AccessTier"):
            storage_class = f"{storage_class} ({tier})"
        return ArchivedError(
            f"{where}: the object is archived and cannot be read. Restore it first, with "
            "aws s3api restore-object",
            storage_class=storage_class,
        )
    if status == 403:
        return Refused(
            f"{where}: S3 answers {code}. Grant {PERMISSIONS[action]}, and use access keys that "
            "have not expired"
        )
    message = error.response.get("Error", {}).get("Message", "")
    return Refused(
        f"{where}: S3 answers {code} ({status}): {message}. Check bucket, region and "
        "AWS_ENDPOINT_URL"
    )


@contextmanager
def translated_s3(where: str, action: str) -> Iterator[None]:
    """Turns botocore's errors into `Refused`, `Transient` or `FileNotFoundError`.

    Their messages begin with `where`. `action` is a key of `PERMISSIONS`.
    """
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        IncompleteReadError,
    )

    try:
        yield
    except ClientError as error:
        raise error_of_answer(error, where, action) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        raise Transient(f"{where}: {_REQUEST.sub('', str(error))}; try again") from error
    except BotoCoreError as error:
        raise Refused(
            f"{where}: {error}. Set access keys, region and endpoint in boto3's AWS_ variables"
        ) from error


class S3Store(Store):
    """A `Store` of the keys below `prefix` in `bucket`. The first request loads boto3.

    With a `budget`, no request is sent after the time of a sensor's tick is used up, and
    `make_client` is called with the budget's `client_options`.
    """

    passing = PASSING

    def __init__(
        self,
        bucket: str,
        prefix: str,
        make_client: Callable[..., Any] | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self.bucket = bucket
        self.prefix = folder_prefix(prefix)
        self.requests = Counter[str]()
        self._honours_if_none_match = False
        self._make_client = make_client or client_from_environ
        self._budget = budget

    @cached_property
    def client(self) -> Any:
        """The S3 client in use, whose requests are counted."""
        budget = self._budget
        client = self._make_client(**budget.client_options if budget else {})
        if budget:
            client.meta.events.register("before-send.s3", budget.check)
        client.meta.events.register("before-call.s3", self._count)
        return client

    def _count(self, model: Any, **_: Any) -> None:
        self.requests.update([model.name])

    def within(self, budget: TimeBudget) -> Store:
        """See `Store.within`. The store has a client of its own."""
        return S3Store(self.bucket, self.prefix, self._make_client, budget)

    def clock_ms(self) -> int:
        """The server's time, from the date of a response."""
        with self._translated("list", self.prefix):
            answer = self.client.list_objects_v2(Bucket=self.bucket, MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return round(parsedate_to_datetime(date).timestamp() * 1_000)

    def objects(self, prefix: str) -> Iterator[StoredFile]:
        """See `Store.objects`. Only current versions are listed."""
        return map(self._stored, self._entries(self.prefix + folder_prefix(prefix)))

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Store.folders`."""
        key = self.prefix + folder_prefix(prefix)
        entries = self._entries(key, "CommonPrefixes", Delimiter="/")
        return sorted(entry["Prefix"].removeprefix(key).removesuffix("/") for entry in entries)

    def read_part(self, name: str, start: int, count: int | None) -> bytes:
        """See `Store.read_part`."""
        key = self._key(name)
        part = {}
        if count is not None:
            last_byte = "" if start < 0 else f"-{start + count - 1}"
            part = {"Range": f"bytes={start}{last_byte}"}
        with self._translated("read", key):
            answer = self.client.get_object(Bucket=self.bucket, Key=key, **part)
            return answer["Body"].read()

    def put(self, name: str, data: bytes) -> None:
        """See `Store.put`."""
        key = self._key(name)
        with self._translated("write", key):
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `Store.put_if_absent`. Refused, before it writes, if the server would overwrite."""
        key = self._key(name)
        writer = uuid4().hex
        if not self.honours_conditions():
            raise Refused(
                f"store: the server of s3://{self.bucket}/{self.prefix} ignores If-None-Match and "
                "overwrites existing keys. Use AWS S3, or a server with conditional PutObject"
            )
        with self._translated("write", key):
            for pause in _PAUSES_SECONDS:
                pause_about(pause)
                if (is_written := self._put_once(key, data, writer)) is not None:
                    return is_written
        raise Transient(
            f"store: cannot write s3://{self.bucket}/{key}: all {len(_PAUSES_SECONDS)} attempts "
            "conflicted with other writes; try again"
        )

    def copy(self, source: StoredFile, name: str, *, of: Store | None = None) -> None:
        """See `Store.copy`. Without `storage_class`, the copy is in S3 Standard."""
        key = self._key(name)
        store = of or self
        source_key = store.prefix + source.name
        own_class = {"StorageClass": source.storage_class} if source.storage_class else {}
        with translated_s3(f"store: cannot copy s3://{store.bucket}/{source_key}", "copy"):
            self.client.copy_object(
                Bucket=self.bucket,
                Key=key,
                CopySource={"Bucket": store.bucket, "Key": source_key},
                CopySourceIfMatch=source.etag,
                TaggingDirective="REPLACE",
                **own_class,
            )

    def delete_each(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `Store.delete_each`."""
        keys = {self._key(name): name for name in names}
        order = [*keys]
        failed = dict[str, str]()
        for start in range(0, len(order), _DELETE_BATCH):
            failed |= self._delete_batch(order[start : start + _DELETE_BATCH])
        return {keys[key]: code for key, code in failed.items()}

    def stat(self, name: str) -> StoredFile | None:
        """See `Store.stat`."""
        key = self._key(name)
        with suppress(FileNotFoundError), self._translated("read", key):
            head = self.client.head_object(Bucket=self.bucket, Key=key)
            return self._stored({**head, "Key": key, "Size": head["ContentLength"]})
        return None

    def honours_conditions(self, name: str = TAKEN) -> bool:
        """Whether the server refuses to overwrite the empty object `name`, created if missing."""
        if not self._honours_if_none_match:
            key = self.prefix + name
            with self._translated("write", key):
                # The first write may create the key. Only the second shows an overwrite.
                is_written = self._put_once(key, b"", uuid4().hex)
                is_overwritten = is_written and self._put_once(key, b"", uuid4().hex)
            self._honours_if_none_match = not is_overwritten  # `False` is checked again
        return self._honours_if_none_match

    def _entries(self, key: str, kind: str = "Contents", **more: str) -> Iterator[ListedObject]:
        """The entries of one kind on all pages of a listing."""
        with self._translated("list", key):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=key, **more):
                yield from page.get(kind, ())

    def _key(self, name: str) -> str:
        return self.prefix + checked_name(name)

    def _stored(self, entry: Mapping[str, Any]) -> StoredFile:
        return StoredFile(
            name=entry["Key"].removeprefix(self.prefix),
            size_bytes=entry["Size"],
            modified_ms=round(entry["LastModified"].timestamp() * 1_000),
            etag=str(entry.get("ETag", "")).strip('"'),
            storage_class=entry.get("StorageClass", ""),
        )

    def completes_conditionally(self, name: str) -> bool:
        """Whether the server refuses to complete a multipart upload to an existing object.

        If the server does not refuse, the upload overwrites the object with one byte. A server may
        honour conditions for PutObject only, but S3A uploads large commits in parts.
        """
        from botocore.exceptions import ClientError

        target = {"Bucket": self.bucket, "Key": self.prefix + name}
        client = self.client
        with self._translated("write", target["Key"]):
            upload = {**target, "UploadId": client.create_multipart_upload(**target)["UploadId"]}
            etag = client.upload_part(**upload, PartNumber=1, Body=b"-")["ETag"]
            parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
            try:
                client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) not in (*_NOT_MET, "ConditionalRequestConflict"):
                    raise
                with suppress(ClientError):  # without the permission, the part of one byte stays
                    client.abort_multipart_upload(**upload)
                return True
            return False

    def _put_once(self, key: str, data: bytes, writer: str) -> bool | None:
        """Whether this call wrote the key; `None` if a concurrent change leaves that undecided.

        botocore, a proxy, or the caller (after `None`) may repeat the request. `writer` is the same
        for all repetitions of one write and is stored with the object, so that a repetition
        recognizes it.
        """
        from botocore.exceptions import ClientError

        target = {"Bucket": self.bucket, "Key": key}
        metadata = {"writer": writer}
        try:
            self.client.put_object(**target, Body=data, IfNoneMatch="*", Metadata=metadata)
            return True
        except ClientError as error:
            if code_of(error) == "ConditionalRequestConflict":
                return None
            if code_of(error) not in _NOT_MET:
                raise
        try:
            return self.client.head_object(**target)["Metadata"].get("writer") == writer
        except ClientError as error:
            if code_of(error) == "404":  # the object was deleted in the meantime
                return None
            raise

    def _delete_batch(self, keys: Sequence[str]) -> dict[str, str]:
        """Deletes at most 1,000 keys. Returns the error code of each key that S3 did not delete.

        Keys with a temporary error are requested again.
        """
        final: dict[str, str] = {}
        pending = dict.fromkeys(keys, "")
        for pause in _PAUSES_SECONDS:
            pause_about(pause)
            with self._translated("delete", next(iter(pending))):
                request = {"Objects": [{"Key": key} for key in pending], "Quiet": True}
                answer = self.client.delete_objects(Bucket=self.bucket, Delete=request)
            errors = {error.get("Key", ""): error["Code"] for error in answer.get("Errors", [])}
            if unexpected := errors.keys() - pending.keys():
                raise Transient(
                    f"store: cannot delete keys in s3://{self.bucket}: the answer names "
                    f"{min(unexpected)!r}, which was not in the request; try again"
                )
            final |= {key: code for key, code in errors.items() if code not in PASSING}
            pending = {key: code for key, code in errors.items() if code in PASSING}
            if not pending:
                break
        return final | pending

    @contextmanager
    def _translated(self, action: str, key: str) -> Iterator[None]:
        """Turns botocore's errors into `Refused`, `Transient` or `FileNotFoundError`."""
        with translated_s3(f"store: cannot {action} s3://{self.bucket}/{key}", action):
            yield


def s3_place(store: Store, name: str) -> tuple[S3Store, str] | None:
    """The real S3 store of a name, and the name in that store; `None` if the name is on a disk."""
    store, real_name = store.place_of(name)
    return (store, real_name) if isinstance(store, S3Store) else None


def download(store: S3Store, names: Sequence[str], paths: Sequence[Path]) -> None:
    """Writes each object, with one request and in pieces, to the path at the same position."""

    def fetch(name: str, path: Path) -> None:
        with store._translated("read", store.prefix + name), path.open("wb") as file:
            answer = store.client.get_object(Bucket=store.bucket, Key=store.prefix + name)
            for piece in answer["Body"].iter_chunks(_PIECE_BYTES):
                file.write(piece)

    at_once(fetch, names, paths)


def upload(path: Path, store: S3Store, name: str) -> None:
    """Writes a file to an object. A large file is written in parts, and never held in memory."""
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig

    parts = TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES)
    with store._translated("write", store.prefix + name):
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

    with store._translated("read the lifecycle rules of", ""):
        try:
            answer = store.client.get_bucket_lifecycle_configuration(Bucket=store.bucket)
        except ClientError as error:
            if code_of(error) != "NoSuchLifecycleConfiguration":
                raise
            answer = {}
    return parse_rules(answer)


def tags_of(store: S3Store, name: str) -> dict[str, str]:
    """The tags of an object; raises FileNotFoundError if it does not exist."""
    with store._translated("read the tags of", store.prefix + name):
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
    with store._translated("write the tags of", store.prefix + name):
        if tag_set:
            store.client.put_object_tagging(**target, Tagging={"TagSet": tag_set})
        else:
            store.client.delete_object_tagging(**target)
    return True
