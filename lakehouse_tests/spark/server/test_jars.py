import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.spark.server import jars

HERE = Path(jars.__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the real jars, of which a test may spoil some."""
    copy = tmp_path / "jars"
    copy.mkdir()
    for jar in jars.fetch():
        (copy / jar.name).hardlink_to(jar)
    return copy


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """In Ivy's place: puts these bytes under each pinned name, the true jar for `None`; nothing at all while the list is empty."""
    answers: list[bytes | None] = []

    def answer(_work: Path, into: Path) -> str:
        if answers:
            into.mkdir()
            for name in jars.pinned():
                true = (jars.FOLDER / name).read_bytes()
                (into / name).write_bytes(true if answers[0] is None else answers[0])
        return "said by ivy"

    monkeypatch.setattr(jars, "_run_ivy", answer)
    return answers


def spoil(jar: Path) -> None:
    content = jar.read_bytes()
    jar.unlink()
    jar.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_every_module_of_ivy_xml_has_a_sum_and_no_other_jar_has() -> None:
    modules = ElementTree.parse(HERE / "ivy.xml").iter("dependency")
    assert sorted(f"{each.get('name')}-{each.get('rev')}.jar" for each in modules) == sorted(
        jars.pinned()
    )


def test_delta_and_s3a_are_those_that_this_pyspark_was_built_for() -> None:
    shipped = {path.name for path in (jars.spark_home() / "jars").glob("*.jar")}
    hadoop = next(name for name in jars.pinned() if name.startswith("hadoop-aws-")).removeprefix(
        "hadoop-aws-"
    )
    delta = next(name for name in jars.pinned() if name.startswith("delta-spark_"))
    spark_minor, scala = re.fullmatch(r"delta-spark_(\d+\.\d+)_(\d+\.\d+)-.*\.jar", delta).groups()  # type: ignore[union-attr]
    assert f"hadoop-client-api-{hadoop}" in shipped
    assert any(name.startswith(f"spark-core_{scala}-{spark_minor}.") for name in shipped)


def test_a_spoilt_jar_is_named_and_replaced(folder: Path, ivy: list[bytes | None]) -> None:
    spoil(folder / "delta-storage-4.4.0.jar")
    assert jars.wrong_jars(folder) == ("delta-storage-4.4.0.jar",)
    (folder / "another.jar").write_bytes(b"x")
    ivy.append(None)
    with (folder / "delta-storage-4.4.0.jar").open("rb") as running:
        spoilt = running.read()
        assert jars.fetch(folder) == tuple(folder / name for name in jars.pinned())
        # A server that runs keeps what it has open.
        assert running.seek(0) == 0 and running.read() == spoilt
    assert jars.wrong_jars(folder) == ()


def test_only_pinned_jars_are_put_in_place(folder: Path, ivy: list[bytes | None]) -> None:
    (folder / "s3-2.35.4.jar").unlink()
    ivy.append(b"not a jar")
    with pytest.raises(Broken, match=r"s3-2\.35\.4\.jar"):
        jars.fetch(folder)
    assert jars.wrong_jars(folder) == ("s3-2.35.4.jar",)
    assert not (folder / "s3-2.35.4.jar").exists()


def test_jars_out_of_reach_are_transient_and_leave_nothing_behind(
    folder: Path, ivy: list[bytes | None]
) -> None:
    (folder / "s3-2.35.4.jar").unlink()
    with pytest.raises(Transient, match="1 of 40 jars"):
        jars.fetch(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["jars", "jars.lock"]


def test_another_java_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text(
        f"#!/bin/sh\nprintf '    java.home = {tmp_path}\\n    java.specification.version = 11\\n' >&2\n"
    )
    old.chmod(0o755)
    monkeypatch.setattr(jars, "java_from_wheel", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Refused, match="needs Java 17 or 21; found JAVA_HOME: Java 11"):
        jars.find_java.__wrapped__()


def test_a_machine_without_java_gets_one_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PATH"):
        monkeypatch.setenv(name, "")
    home = jars.find_java.__wrapped__()
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in said.stderr
