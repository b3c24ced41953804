"""An interrupt while modules are imported: raised once they are there."""

import signal
import subprocess
import sys

import pytest

from lakehouse.base.processes import late_interrupts

# The signal comes while pandas is on the way.
_INTERRUPTED_IMPORT = """
import signal, sys
from pathlib import Path
from lakehouse.base.settings import parse_settings
from lakehouse.spark.session import _builder

class Interrupts:
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == "pandas._libs.internals" and not self.sent:
            self.sent = True
            signal.raise_signal(signal.SIGINT)
            print("goes on")

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
try:
    _builder(parse_settings({}, base=Path("lake")))
except KeyboardInterrupt:
    print("interrupted", "delta.connect" in sys.modules)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_comes_at_the_end_and_to_its_earlier_handler(number: signal.Signals) -> None:
    came: list[str] = []
    before = signal.signal(number, lambda *_: came.append("handled"))
    try:
        with late_interrupts():
            signal.raise_signal(number)
            signal.raise_signal(number)
            came.append("imported")
        assert came == ["imported", "handled"]
        signal.raise_signal(number)
        assert came == ["imported", "handled", "handled"]
    finally:
        signal.signal(number, before)


def test_an_import_of_spark_s_client_is_not_broken_off() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert told.stdout.split("\n")[:2] == ["goes on", "interrupted True"], told.stderr
