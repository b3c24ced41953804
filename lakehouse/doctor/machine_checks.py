"""Runs checks one after the other, and those of this machine: home, disk, ports, Java and jars."""

import os
import stat
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.settings import Settings
from lakehouse.base.text import count_of
from lakehouse.doctor.plan import Doubt, Finding, State, Verdict
from lakehouse.spark.server.jars import FOLDER, pinned, wrong_jars
from lakehouse.spark.server.java import find_java

# The time limit of a check with `limited`. It must exceed the 60 s (three attempts of 20 s) after
# which Spark gives up on a master. Source: Spark 4.2.0, StandaloneAppClient.scala
_MOST_SECONDS = 180.0
_MOST_CHARACTERS = 400
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Examination:
    """The findings so far. `show` is called with each finding as soon as it is known."""

    def __init__(self, show: Callable[[Finding], None]) -> None:
        self.findings: list[Finding] = []
        self._show = show

    def check(
        self, name: str, run_check: Callable[[], Verdict], *, after: str = "", limited: bool = False
    ) -> bool:
        """Runs a check; returns whether it passed, perhaps with a warning.

        The check is skipped unless the check `after` passed. With `limited`, it fails after three
        minutes, because Spark waits for executors without a limit.
        """
        if after and self.state_of(after) not in ("ok", "warning"):
            return self.note(name, "skipped", f"needs {after}, which did not pass")
        try:
            verdict = _within(_MOST_SECONDS, run_check) if limited else run_check()
        except LakehouseError as error:
            return self.note(name, "failed", str(error))
        except Exception as error:
            line = (str(error).splitlines() or [""])[0][:_MOST_CHARACTERS]
            return self.note(name, "failed", f"{type(error).__name__}: {line}")
        if isinstance(verdict, Doubt):
            return self.note(name, "warning", verdict.sentence)
        return self.note(name, "ok", verdict)

    def note(self, name: str, state: State, sentence: str) -> bool:
        """Records a finding; returns whether later checks may depend on it."""
        finding = Finding(name=name, state=state, sentence=sentence)
        self.findings.append(finding)
        self._show(finding)
        return state in ("ok", "warning")

    def state_of(self, name: str) -> State:
        """The state of an earlier check; `skipped` if it did not run."""
        for each in self.findings:
            if each.name == name:
                return each.state
        return "skipped"


def _within(seconds: float, run_check: Callable[[], Verdict]) -> Verdict:
    """Calls `run_check` in a separate thread, which is abandoned after `seconds`."""
    results = list[Verdict]()
    errors = list[BaseException]()

    def work() -> None:
        try:
            results.append(run_check())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise Refused(
            f"no answer within {seconds:.0f} s. Check on the cluster's page that there are workers "
            "with free cores and memory, and that they can reach this machine and the storage"
        )
    return results[0]


def check_machine(examination: Examination, settings: Settings) -> None:
    """Checks what every run needs on this machine, without requests to other machines."""
    examination.check("home", lambda: _home(settings.home))
    if settings.spark.startswith("sc://"):
        examination.note("java", "skipped", "Java is not needed: Spark's driver is on the server")
        return
    examination.check("java", _java)
    examination.check("jars", _jars)


def client_versions() -> dict[str, str]:
    """The versions of Spark's and Delta's Python packages in this environment."""
    return {"Spark": version("pyspark"), "Delta": version("delta-spark")}


def nearest_folder(path: Path) -> Path:
    """The folder itself if it exists, otherwise the nearest existing folder above it."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _home(home: Path) -> Verdict:
    folder = nearest_folder(home)
    if not folder.is_dir():
        raise Refused(f"{folder} is a file. Use a folder for LAKEHOUSE_HOME")
    probe = folder / f".lakehouse-doctor-{uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"cannot write to {folder}: {error.strerror}. Give this user the right to write there, "
            "or use another folder for LAKEHOUSE_HOME"
        ) from error
    if folder != home:
        return f"{home} does not exist yet and can be created"
    if home.stat().st_mode & _OTHERS_MAY_WRITE:
        return Doubt(
            sentence=f"other users may write to {home}, which holds the Spark server's token. Use: "
            f"chmod go-w {home}"
        )
    return f"{home} can be written"


def _java() -> Verdict:
    return f"Java for Spark's driver: {find_java()}"


def _jars() -> Verdict:
    wrong = wrong_jars()
    if not wrong:
        return f"all {len(pinned())} jars of Delta and S3A match their checksums"
    missing = [name for name in wrong if not os.path.exists(FOLDER / name)]
    if missing:
        return Doubt(
            sentence=f"{len(missing)} of {len(pinned())} jars are missing, for example "
            f"{missing[0]}. The next start fetches them. To fetch them now, use: make setup"
        )
    raise Refused(
        f"wrong checksum of {count_of(len(wrong), 'jar')}, for example {wrong[0]}. Use: make setup"
    )
