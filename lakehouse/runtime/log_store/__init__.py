"""Chooses Delta's log stores, so that Spark writes a version only if it does not exist.

`ConditionalS3LogStore` and `LinkLogStore` are Java; `make jar` compiles them (`build.py`).
"""

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lakehouse.core.declaration.adopted import DELTAS_CONDITIONAL_STORE
from lakehouse.core.s3_address import s3_endpoint
from lakehouse.core.settings import Settings

JAR = Path(__file__).with_name("lakehouse-log-store.jar")
ON_DISK = "lakehouse.logstore.LinkLogStore"
ON_S3 = "lakehouse.logstore.ConditionalS3LogStore"
# This file in the home records which buckets honour conditional writes, and the log stores of
# Connect servers. If two processes write it at the same time, one of the records is lost. The next
# process that needs it tests again.
_FILE = "commits.json"


def log_store_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """The log stores in the configuration of a driver that this process starts.

    A driver has one log store for all buckets. If any bucket ignores conditional writes, S3's log
    store is not set. In this case, Delta's default log store checks for a version before writing,
    which is safe in one driver only.
    """
    classes = {"file": ON_DISK}
    answers = _answers(settings)
    is_honoured = all(answers.values()) if answers else _is_expected(settings)
    if is_honoured:
        on_s3 = DELTAS_CONDITIONAL_STORE if _delta_has_its_own(jars) else ON_S3
        classes |= {"s3a": on_s3, "s3": on_s3}
    return {log_store_setting(scheme): name for scheme, name in classes.items()}


def log_store_setting(scheme: str) -> str:
    """The name of Spark's setting for an address scheme: `s3a`, `s3` or `file`."""
    return f"spark.delta.logStore.{scheme}.impl"


def log_stores_in(conf: Mapping[str, str]) -> dict[str, str]:
    """The log store settings in a Spark configuration."""
    return {name: value for name, value in conf.items() if name.startswith("spark.delta.logStore.")}


def remembered_log_stores(settings: Settings) -> Mapping[str, str]:
    """The log stores of the Connect server `sc://…` in the settings, at the last connection."""
    return _known(settings, "servers").get(_server(settings), {})


def remember_log_stores(settings: Settings, log_stores: Mapping[str, str]) -> None:
    """Records for this home which log stores the Connect server `sc://…` has."""
    if remembered_log_stores(settings) != log_stores:
        _remember(settings, "servers", _server(settings), dict(log_stores))


def honours_conditions(settings: Settings, address: str) -> bool:
    """Whether the bucket of an address honours conditional writes, as far as this home knows.

    True for an unknown bucket of AWS, or of the lake's own S3 server, because the first write to a
    bucket tests this bucket. Source: AWS, S3 user guide, "Conditional writes": all regions and
    buckets
    """
    known = known_conditions(settings, address)
    return _is_expected(settings) if known is None else known


def known_conditions(settings: Settings, address: str) -> bool | None:
    """Whether the address's bucket honours conditional writes; `None` if not tested by this home.

    One server's buckets may differ: a gateway can use several kinds of storage.
    """
    return _answers(settings).get(urlsplit(address).netloc)


def remember_conditions(settings: Settings, address: str, *, is_honoured: bool) -> None:
    """Records for this home whether the bucket of an address honours conditional writes."""
    if known_conditions(settings, address) != is_honoured:
        answers = _answers(settings) | {urlsplit(address).netloc: is_honoured}
        _remember(settings, "conditions", s3_endpoint(os.environ) or "AWS", answers)


def ignoring_bucket(settings: Settings) -> str | None:
    """A bucket of the current S3 server that is known to ignore conditional writes."""
    answers = _answers(settings).items()
    return next((bucket for bucket, is_honoured in answers if not is_honoured), None)


def _server(settings: Settings) -> str:
    return settings.spark.partition(";")[0]  # the rest may contain secrets


def _is_expected(settings: Settings) -> bool:
    """Whether an untested bucket counts as honouring conditional writes."""
    return settings.on_s3 or s3_endpoint(os.environ) is None


def _answers(settings: Settings) -> dict[str, bool]:
    """Whether conditional writes are honoured, by bucket of the current S3 server."""
    return _known(settings, "conditions").get(s3_endpoint(os.environ) or "AWS", {})


def _known(settings: Settings, kind: str) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError):
        return json.loads((settings.home / _FILE).read_text()).get(kind, {})
    return {}


def _remember(settings: Settings, kind: str, name: str, value: object) -> None:
    kinds = {each: _known(settings, each) for each in ("conditions", "servers")}
    kinds[kind] = {**kinds[kind], name: value}
    path = settings.home / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_FILE}.{os.getpid()}")
    temporary.write_text(json.dumps(kinds, indent=1))
    temporary.replace(path)


def _delta_has_its_own(jars: Sequence[Path]) -> bool:
    """Whether the jar of Delta's log stores contains a conditional log store for S3."""
    name = f"{DELTAS_CONDITIONAL_STORE.replace('.', '/')}.class"
    for jar in jars:
        if jar.name.startswith("delta-storage"):
            with zipfile.ZipFile(jar) as archive:
                return name in archive.namelist()
    return False
