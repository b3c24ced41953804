"""The settings of a command; imports no lake, so that `lakehouse up` starts faster."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from lakehouse.base.installation import project_folder
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.declare.adopted import MAINTAINED, with_project_defaults

# Where a Dagster project that calls `maintain` records its tables by default.
_RECORDS = f".lakehouse/lake/{MAINTAINED}"


def settings_in_force() -> Settings:
    """The settings in the environment. Relative folders are resolved against the project's folder.

    The project's folder is the nearest folder, from the working folder upwards, in which `maintain`
    has recorded tables, or else `project_folder`. If `maintain` has recorded tables in a lake on
    disk, `with_project_defaults` gives the defaults. The package with the tables can be imported
    afterwards, if it is in the working folder or in the project's.
    """
    here = Path.cwd()
    project = project_folder()
    base = next((each for each in (here, *here.parents) if (each / _RECORDS).is_dir()), project)
    settings = parse_settings(os.environ, base=base)
    if not settings.on_s3 and Path(settings.root, MAINTAINED).is_dir():
        settings = parse_settings(with_project_defaults(os.environ), base=base)
    package = settings.tables.partition(".")[0]
    for folder in (here, project):
        is_here = (folder / package).is_dir() or (folder / f"{package}.py").is_file()
        if is_here and find_spec(package) is None:  # child processes need it, too
            sys.path.append(str(folder))
            paths = filter(None, (os.environ.get("PYTHONPATH"), str(folder)))
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    return settings
