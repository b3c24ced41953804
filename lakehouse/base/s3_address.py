"""Checks S3 bucket names, finds the S3 server and region, and refuses credentials in addresses."""

import re
from collections.abc import Mapping

from lakehouse.base.errors import Refused

# Source: Amazon S3 user guide, "General purpose bucket naming rules"
_BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
# Matches a user before an @, as in http://user:password@host, or a query with a =, which may be a
# signature. An @ in the path matches, too. An @ after a semicolon does not match: it belongs to a
# parameter of an sc:// address.
_CREDENTIALS = re.compile(r"://[^;?]*@|://\S*\?\S*=")
# The variables for the S3 server, in the order in which boto3 reads them.
S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# boto3 itself reads only the first of these variables, and the JVM only the second.
_S3_REGIONS = ("AWS_DEFAULT_REGION", "AWS_REGION")
_S3_KEYS = "Put keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into an AWS_PROFILE."
# The settings whose value is an address, each with the advice where to put credentials instead.
# Addresses are shown and written into files, so they must not contain credentials.
_ADDRESSES = {
    "LAKEHOUSE_ROOT": _S3_KEYS,
    "LAKEHOUSE_HOME": _S3_KEYS,
    "LAKEHOUSE_SPARK": "Put a token into SPARK_CONNECT_AUTHENTICATE_TOKEN.",
    **dict.fromkeys((*S3_ENDPOINTS, "AWS_ENDPOINT_URL_SQS"), _S3_KEYS),
}


def holds_credentials(address: str) -> bool:
    """Whether an address may contain a user, a password or a signed query."""
    return _CREDENTIALS.search(address) is not None


def refuse_credentials(environ: Mapping[str, str]) -> None:
    """Refuses settings whose address contains credentials, without repeating the address."""
    for name, advice in _ADDRESSES.items():
        if holds_credentials(environ.get(name, "")):
            raise Refused(
                f"{name} holds a user, a password or a signed query. Use an address without"
                f" credentials. {advice}"
            )


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The S3 server that these environment variables name; `None` means AWS."""
    return next((environ[name] for name in S3_ENDPOINTS if environ.get(name)), None)


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The S3 region that these environment variables name, if any."""
    return next((environ[name] for name in _S3_REGIONS if environ.get(name)), None)


def is_bucket(name: str) -> bool:
    """Whether the name is valid for a bucket."""
    return bool(_BUCKET.fullmatch(name)) and not _IP_ADDRESS.fullmatch(name)


def nearest_root(rest: str) -> str:
    """The root that a misspelled S3 address probably means, or an empty string.

    `rest` is the address without its scheme. In an http address such as
    `bucket.s3.eu-west-1.amazonaws.com`, the bucket's name comes before `.s3`.
    """
    host, _, path = rest.strip("/").partition("/")
    bucket = re.sub(r"[^a-z0-9.-]+", "-", host.split(".s3")[0].lower()).strip("-.")
    if not is_bucket(bucket):
        return ""
    folders = [folder for folder in path.split("/") if folder.strip(".")]
    parts = [re.sub(r"[^A-Za-z0-9_.=-]+", "-", folder) for folder in folders]
    return "/".join(["s3:/", bucket, *parts])
