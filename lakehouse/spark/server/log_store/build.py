"""Compiles the log stores and packs them into `lakehouse-log-store.jar`. Requires a JDK.

The same compiler makes the same jar on every machine, byte for byte: entries are sorted, have a
fixed time, and are not compressed.
"""

import subprocess
import tempfile
import zipfile
from pathlib import Path

from lakehouse.spark.server import jars
from lakehouse.spark.server.log_store import JAR

HERE = Path(__file__).resolve().parent
# The earliest time that the zip format can store.
_TIME = (1980, 1, 1, 0, 0, 0)
_MANIFEST = "Manifest-Version: 1.0\r\n\r\n"


def build(jar: Path = JAR) -> None:
    """Writes the jar, for Java 17 or newer."""
    class_path = f"{jars.FOLDER}/*:{jars.spark_home() / 'jars'}/*"
    # The classes contain line numbers, but no paths of this machine.
    options = ["--release", "17", "-g:source,lines", "-Xlint:all,-options,-path", "-proc:none"]
    sources = [str(source) for source in sorted(HERE.glob("*.java"))]
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", *options, "-classpath", class_path, "-d", folder, *sources]
        subprocess.run(command, check=True)
        classes = sorted(Path(folder).glob("**/*.class"))
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _TIME), _MANIFEST)
            for each in classes:
                name = each.relative_to(folder).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _TIME), each.read_bytes())


if __name__ == "__main__":
    build()
