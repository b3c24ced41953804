"""The house without what can be deleted: the tests of the rest still work."""

import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse_tests.test_house import DELETABLE, copied_without

# The tests of plans, as in `make fast`.
QUICK = (
    "base",
    "declare",
    "delta/test_*.py",
    "*/plan",
    "*/*/plan",
    "*/test_plan.py",
    "*/*/test_plan.py",
)
# These are about the documents and the whole house.
_OF_THE_WHOLE = ("--ignore=lakehouse_tests/long", "--ignore-glob=lakehouse_tests/test_*.py")


@pytest.mark.parametrize("folder", DELETABLE)
def test_without_each_every_test_of_the_rest_is_found_and_those_of_plans_pass(
    folder: str, tmp_path: Path
) -> None:
    """A test of the rest that imports the folder stops the collection."""
    copy = tmp_path / "house"
    environ = copied_without([folder], copy)
    quick = sorted({str(path) for each in QUICK for path in (copy / "lakehouse_tests").glob(each)})
    for chosen in (("--collect-only", *_OF_THE_WHOLE), quick):
        check_tests(copy, environ, *chosen)


def check_tests(copy: Path, environ: dict[str, str], *chosen: str) -> None:
    command = [sys.executable, "-S", "-m", "pytest", "-q", *chosen]
    done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6_000:]
