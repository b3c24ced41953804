"""The errors that S3 answers with, as ours."""

from collections.abc import Mapping
from typing import Any

from lakehouse.core.errors import Refused, Transient

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
# A server that lacks an operation lacks it the next time, too.
_NOT_IMPLEMENTED = 501
PERMISSIONS = {
    "list": "s3:ListBucket",
    "read": "s3:GetObject (and s3:ListBucket)",
    "write": "s3:PutObject",
    "delete": "s3:DeleteObject",
}


def answer_parts(error: Any) -> tuple[str, int, Mapping[str, Any]]:
    """The code, the HTTP status and the metadata of the answer that botocore's error tells of."""
    answer = error.response.get("ResponseMetadata", {})
    return (
        str(error.response.get("Error", {}).get("Code", "")),
        answer.get("HTTPStatusCode", 0),
        answer,
    )


def error_of_answer(error: Any, where: str, action: str) -> Exception:
    """The error for an answer that refused this action; a missing key is FileNotFoundError."""
    code, status, _ = answer_parts(error)
    if code in ("NoSuchKey", "404"):
        return FileNotFoundError(where)
    if code == "NoSuchBucket":
        return Refused(f"{where}: there is no such bucket; make it first, or correct its name")
    if code in PASSING or (status >= 500 and status != _NOT_IMPLEMENTED) or status == 429:
        return Transient(f"{where}: S3 answers {code} ({status}); try again")
    if code == "InvalidObjectState":
        return Refused(
            f"{where}: the object is archived and cannot be read; restore it first, with aws s3api restore-object"
        )
    if status == 403:
        return Refused(
            f"{where}: S3 answers {code}; needed is {PERMISSIONS[action]}, with keys that are valid now"
        )
    said = error.response.get("Error", {}).get("Message", "")
    return Refused(
        f"{where}: S3 answers {code} ({status}): {said}; check bucket, region and AWS_ENDPOINT_URL"
    )
