"""Calls functions in a new process, so that its memory holds nothing else.

`python -m benchmarks.fresh MODULE FUNCTION ARGUMENTS` is that process.
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
    """Within the block, functions run in this process, because nothing is measured."""
    mark = _is_smoke.set(True)
    try:
        yield
    finally:
        _is_smoke.reset(mark)


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a module's function in a new process; arguments and result pass as JSON."""
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
    """The peak memory of this process. `ru_maxrss` would include its parent's."""
    [line] = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(getattr(import_module(sys.argv[1]), sys.argv[2])(*json.loads(sys.argv[3]))))
