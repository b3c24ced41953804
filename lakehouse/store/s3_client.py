"""Creates the boto3 client for S3, sends conditional requests, and translates botocore's errors.

Region, endpoint, profile and attempts come from the AWS_ variables (`client_options`). boto3 itself
finds the access keys.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.settings import s3_endpoint, s3_region
from lakehouse.store.interface import StoredFile

# Threads that send requests for one caller. The client's pool has twice as many connections.
READERS = 16
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
PERMISSIONS = {
    "list": "s3:ListBucket",
    "read": "s3:GetObject (and s3:ListBucket)",
    "write": "s3:PutObject",
    "copy": "s3:PutObject and s3:GetObject (and s3:GetObjectTagging for objects with tags)",
    "delete": "s3:DeleteObject",
    "lifecycle": "s3:GetLifecycleConfiguration",
    "tags": "s3:GetObjectTagging",
    "put tags": "s3:PutObjectTagging and s3:DeleteObjectTagging",
}
# Matches the part of a URL after its host, to remove it from error messages: it may contain a
# signature.
_REQUEST = re.compile(r'(?<=\w)/[^\s"]*(?=")')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client; the seconds limit the wait for a connection and for each answer."""

    region_name: str | None = None
    endpoint_url: str | None = None
    profile_name: str | None = None
    max_attempts: int = _ATTEMPTS
    connect_seconds: float = 5
    read_seconds: float = 60


def client_options(environ: Mapping[str, str]) -> dict[str, Any]:
    """The options that the AWS_ variables set, under the names of dagster-aws."""
    return {
        "region_name": s3_region(environ),
        "endpoint_url": s3_endpoint(environ),
        "profile_name": environ.get("AWS_PROFILE") or None,
        "max_attempts": int(environ.get("AWS_MAX_ATTEMPTS") or _ATTEMPTS),
    }


def client_from_environ(**options: Any) -> Any:
    """A client with the options that the AWS_ variables set, replaced by `options`."""
    merged = client_options(os.environ) | options
    return s3_client(ClientOptions(**merged))


def s3_client(options: ClientOptions) -> Any:
    """The boto3 client for a store. Several threads may use the same client."""
    from lakehouse.base.installation import require

    require("boto3", extra="s3", purpose="a lake on S3")
    import boto3
    from botocore.config import Config

    # Some S3 servers do not support trailing checksums. With TLS, they are not needed.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        max_pool_connections=2 * READERS,
        connect_timeout=options.connect_seconds,
        read_timeout=options.read_seconds,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.Session(region_name=options.region_name, profile_name=options.profile_name)
    return session.client("s3", endpoint_url=options.endpoint_url, config=config)


class FailedAnswer(NamedTuple):
    """The answer in a ClientError of botocore: its error code, HTTP status and metadata."""

    code: str
    status: int
    metadata: Mapping[str, Any]


def answer_of(error: Any) -> FailedAnswer:
    """The answer in a ClientError of botocore."""
    metadata = error.response.get("ResponseMetadata", {})
    code = str(error.response.get("Error", {}).get("Code", ""))
    return FailedAnswer(code, metadata.get("HTTPStatusCode", 0), metadata)


def put_conditionally(
    client: Any, bucket: str, key: str, data: bytes, *, writer: str
) -> bool | None:
    """Whether this call wrote the key; `None` if a concurrent change leaves that undecided.

    botocore, a proxy, or the caller (after `None`) may repeat the request. `writer` is the same for
    all repetitions of one write and is stored with the object, so that a repetition recognizes it.
    """
    from botocore.exceptions import ClientError

    target = {"Bucket": bucket, "Key": key}
    try:
        client.put_object(**target, Body=data, IfNoneMatch="*", Metadata={"writer": writer})
        return True
    except ClientError as error:
        code = answer_of(error).code
        if code == "ConditionalRequestConflict":
            return None
        if code not in _NOT_MET:
            raise
    try:
        return client.head_object(**target)["Metadata"].get("writer") == writer
    except ClientError as error:
        if answer_of(error).code == "404":  # the object was deleted in the meantime
            return None
        raise


def completes_conditionally(client: Any, bucket: str, key: str) -> bool:
    """Whether the server refuses to complete a multipart upload to an existing key.

    `key` must exist. If the server does not refuse, the upload overwrites it with one byte. A
    server may honour conditions for PutObject only, but S3A uploads large commits in parts.
    """
    from botocore.exceptions import ClientError

    target = {"Bucket": bucket, "Key": key}
    with translated_s3(f"store: cannot write s3://{bucket}/{key}", "write"):
        upload = {**target, "UploadId": client.create_multipart_upload(**target)["UploadId"]}
        etag = client.upload_part(**upload, PartNumber=1, Body=b"-")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        try:
            client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
        except ClientError as error:
            if answer_of(error).code not in (*_NOT_MET, "ConditionalRequestConflict"):
                raise
            with suppress(ClientError):  # without the permission, the part of one byte stays
                client.abort_multipart_upload(**upload)
            return True
        return False


def copy_unchanged(client: Any, bucket: str, source: StoredFile, key: str, *, of: str) -> None:
    """Copies an object of the bucket `of`, if it has not changed since it was listed.

    `source.name` is the whole key. The copy has no tags, and the storage class of `source`, or S3
    Standard if `source` has none.

    Raises:
        Transient: the object was written again since it was listed.
        ClientError: the request failed for another reason.
    """
    from botocore.exceptions import ClientError

    own_class = {"StorageClass": source.storage_class} if source.storage_class else {}
    try:
        client.copy_object(
            Bucket=bucket,
            Key=key,
            CopySource={"Bucket": of, "Key": source.name},
            CopySourceIfMatch=source.etag,
            TaggingDirective="REPLACE",
            **own_class,
        )
    except ClientError as error:
        if answer_of(error).code not in _NOT_MET:
            raise
        raise Transient(
            f"store: s3://{bucket}/{source.name} was written again while it was copied; try again"
        ) from error


def error_of_answer(error: Any, where: str, action: str) -> Exception:
    """The error to raise for a failed action; FileNotFoundError for a missing key."""
    code, status, _ = answer_of(error)
    if code in ("NoSuchKey", "404"):
        return FileNotFoundError(where)
    if code == "NoSuchBucket":
        return Refused(f"{where}: there is no such bucket. Create it first, or correct its name")
    is_server_error = status >= 500 and status != _NOT_IMPLEMENTED
    if code in PASSING or is_server_error or status == 429:
        return Transient(f"{where}: S3 answers {code} ({status}); try again")
    if code == "InvalidObjectState":
        return Refused(
            f"{where}: the object is archived and cannot be read. Restore it first, with "
            "aws s3api restore-object"
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
