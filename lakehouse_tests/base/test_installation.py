"""The project's folder, and the settings in its `.env`."""

import os
from pathlib import Path

import pytest

from lakehouse.base.installation import ROOT, project_folder, project_settings


def test_env_of_the_nearest_folder_that_has_settings_goes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAKEHOUSE_ROOT", "LAKEHOUSE_HOME", "LAKEHOUSE_TABLES", "AWS_PROFILE"):
        monkeypatch.setenv(name, "before")
    inner = tmp_path / "shop" / "tables"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert project_folder() == ROOT
    settings = "LAKEHOUSE_HOME=.lakehouse\nLAKEHOUSE_ROOT=lake\nAWS_PROFILE='own'\n"
    (tmp_path / "shop" / ".env").write_text(settings)
    (inner / ".env").write_text("OTHER=1\n")  # not of a lake
    found = project_settings()
    assert found.root == str(tmp_path / "shop" / "lake")
    assert found.home == tmp_path / "shop" / ".lakehouse"
    assert (os.environ["AWS_PROFILE"], found.tables) == ("own", "before")
