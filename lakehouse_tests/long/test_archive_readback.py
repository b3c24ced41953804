"""An archive on disk and on S3 is read, restored and expired, and the process dies at every step."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from lakehouse import Archive
from lakehouse.core.archive.restore_plan import RestoreRequest
from lakehouse.core.settings import Settings
from lakehouse.core.units import DAY_MS
from lakehouse.engine.archive import expire as expiry
from lakehouse.engine.archive import restore
from lakehouse.engine.archive.expire import expire
from lakehouse.engine.archive.read import read_table
from lakehouse.engine.archive.restore import run_restore
from lakehouse.engine.archive.run import run_archive
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake, TableSession, open_lake
from lakehouse.engine.spark.open_session import connect
from lakehouse.engine.spark.temporary_confs import session_confs
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.core.archive.example_archive import DAYS
from lakehouse_tests.engine.archive.cases import contents_now
from lakehouse_tests.kills import killed_at
from lakehouse_tests.s3_servers import lake_on_s3

TABLE = replace(DAYS, archive=Archive(older_than_days=3, keep_days=1, clock="newest_row"))
RESTORE_STEPS = [
    (restore, "record_operation", "before"),
    (restore, "record_operation", "after"),
    (restore, "write_frame", "before"),
    (restore, "write_frame", "after"),
    (restore, "_checked_version", "before"),
]
EXPIRE_STEPS = [
    (expiry, "record_operation", "before"),
    (expiry, "record_operation", "after"),
    (expiry, "_delete", "before"),
    (expiry, "_delete", "after"),
]


@pytest.fixture(scope="module", params=["disk", "s3"])
def settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a lake on disk, or in a bucket, with its own server."""
    home = tmp_path_factory.mktemp("lake")
    if request.param == "s3":
        with lake_on_s3("moto", home) as on_s3:
            yield on_s3
        return
    on_disk = own_settings(home)
    with server.supervised(on_disk):
        yield on_disk


class Played:
    """The table, with days 1 to 5 of two rows each and a late row, of which the first are archived."""

    def __init__(self, settings: Settings) -> None:
        self.lake: Lake = open_lake(settings)
        self.spark: Any = connect(settings)
        self.session = TableSession(lake=self.lake, spark=self.spark, table=TABLE)
        self.ids = list[int]()
        self._next_id = 0

    def add(self, *days: int) -> None:
        """One commit with a row of each day, in the table itself."""
        rows = [(self._next_id + place, date(2013, 1, day)) for place, day in enumerate(days)]
        self._next_id += len(rows)
        self.ids += [id_ for id_, _ in rows]
        frame = self.spark.createDataFrame(rows, "id BIGINT, day DATE")
        uri = self.lake.table_uri(TABLE.key)
        frame.write.format("delta").mode("append").partitionBy("day").save(uri)

    def check(self) -> None:
        """A reader of table and archive finds each row once."""
        rows = read_table(self.session, with_archive=True).collect()
        assert sorted(row["id"] for row in rows) == self.ids

    def days(self) -> set[str]:
        """The days that the archive has."""
        return {str(each.partition[0][1]) for each in contents_now(self.lake).partitions}


def test_no_row_is_lost_or_doubled_until_its_time_is_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restores, and then expiries, are killed at every step and repeated."""
    played = Played(settings)
    played.add(*range(1, 9), *range(1, 9))
    run_archive(played.session)
    played.add(1)
    run_archive(played.session)
    played.check()
    assert played.days() == {f"2013-01-0{day}" for day in range(1, 5)}
    for owner, name, when in RESTORE_STEPS:
        with killed_at(owner, name, when):
            run_restore(played.session, RestoreRequest(values=[{"day": "2013-01-01"}]))
        played.check()
        run_restore(played.session, RestoreRequest(values=[{"day": "2013-01-01"}]))
        played.check()
        assert "2013-01-01" not in played.days()
        assert run_archive(played.session).operation is None  # restored days stay for a while
        later_ms = now_ms() + 4 * DAY_MS
        with monkeypatch.context() as patch:
            patch.setattr("lakehouse.engine.archive.run.now_ms", lambda: later_ms)  # noqa: B023
            assert run_archive(played.session).operation is not None
        played.check()
    place = f"{settings.root}/bronze/again"
    outcome = run_restore(played.session, RestoreRequest(target=place))
    copied = played.spark.read.format("delta").load(played.lake.table_uri("bronze/again"))
    assert copied.count() == outcome.plan.row_count == 9
    for number, (owner, name, when) in enumerate(EXPIRE_STEPS):
        after_ms = now_ms() + (30 + 30 * number) * DAY_MS
        with monkeypatch.context() as patch:
            patch.setattr("lakehouse.engine.archive.expire.now_ms", lambda: after_ms)  # noqa: B023
            patch.setattr("lakehouse.engine.archive.run.now_ms", lambda: after_ms)  # noqa: B023
            gone = contents_now(played.lake).row_count
            with killed_at(owner, name, when):
                expire(played.lake, TABLE)
            assert contents_now(played.lake).row_count in (0, gone)
            outcome = expire(played.lake, TABLE)
            assert outcome is not None and not outcome.failed
            assert played.lake.store.list(f"archive/{TABLE.key}") == []
            rows = read_table(played.session, with_archive=True).collect()
            played.ids = sorted(row["id"] for row in rows)
            played.add(15 + 4 * number)  # days that were new before are old now
            run_archive(played.session)
            played.check()


def test_a_missing_archived_file_is_an_error_whatever_the_session_says(settings: Settings) -> None:
    """Its rows are not left out of a result without a word."""
    played = Played(replace(settings, root=f"{settings.root}/other"))
    played.add(1, 2, 31)
    run_archive(played.session)
    rows = read_table(played.session, with_archive=True)
    assert rows.count() == 3
    [first, *_] = contents_now(played.lake).partitions
    played.lake.store.delete([file.archived for file in first.files])
    with (
        session_confs(played.spark, {"spark.sql.files.ignoreMissingFiles": "true"}),
        pytest.raises(Exception, match=r"FILE_NOT_EXIST|PATH_NOT_FOUND|does not exist"),
    ):
        rows.count()
