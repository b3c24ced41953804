"""The Spark server writes nothing outside of its home."""

from pathlib import Path

import pytest

from lakehouse.base.settings import Settings
from lakehouse.spark import session as open_session


@pytest.mark.spark
def test_nothing_is_written_outside_of_home(
    tmp_path: Path, shared_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = open_session.connect(shared_settings)
    session.range(10).repartition(2).write.format("delta").save(str(tmp_path / "table"))
    assert (
        session.sql(f"OPTIMIZE delta.`{tmp_path / 'table'}`").collect()[0].metrics.numFilesAdded
        == 1
    )
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
