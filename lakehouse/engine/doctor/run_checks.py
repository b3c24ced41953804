"""Runs checks one after the other. Each check becomes a finding, even if it raises an error."""

import threading
from collections.abc import Callable

from lakehouse.core.doctor_verdicts import Doubt, Finding, State, Verdict
from lakehouse.core.errors import LakehouseError, Refused

# The time limit of a check with `limited`. It must exceed the 60 s (three attempts of 20 s) after
# which Spark gives up on a master. Source: Spark 4.2.0, StandaloneAppClient.scala
_MOST_SECONDS = 180.0
_MOST_CHARACTERS = 400


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
