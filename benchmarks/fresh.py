"""Functions that run in a process of their own, whose memory holds nothing that others left.

`python -m benchmarks.fresh MODULE FUNCTION ARGUMENTS` is such a process.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any

_is_smoke = ContextVar("is_smoke", default=False)


@contextmanager
def smoke() -> Iterator[None]:
    """Within it nothing is measured: functions run in this process, which takes less time."""
    mark = _is_smoke.set(True)
    try:
        yield
    finally:
        _is_smoke.reset(mark)


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a function of a module, called with these arguments in a process of its own; value and arguments as in JSON."""
    if _is_smoke.get():
        return function(*arguments)
    module = sys.modules[function.__module__]
    name = (
        module.__spec__.name if module.__spec__ else function.__module__
    )  # a module that runs as a program calls itself __main__
    command = [
        sys.executable,
        "-m",
        "benchmarks.fresh",
        name,
        function.__name__,
        json.dumps(arguments),
    ]
    return json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[
            -1
        ]
    )


def peak_bytes() -> int:
    """The most memory that this process alone has held: `ru_maxrss` would begin with what its parent held."""
    [line] = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(getattr(import_module(sys.argv[1]), sys.argv[2])(*json.loads(sys.argv[3]))))
