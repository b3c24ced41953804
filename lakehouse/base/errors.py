"""The three kinds of failure. Each kind defines what has to happen next."""


class LakehouseError(Exception):
    """The base class of all errors that this project raises. The message is a sentence."""

    exit_code = 1


class Refused(LakehouseError):
    """Refused on purpose. The caller or the configuration must change.

    Nothing was changed, unless the message reports a part that was done.
    """

    exit_code = 2


class Transient(LakehouseError):
    """The same call may succeed later, unchanged."""

    exit_code = 75


class Broken(LakehouseError):
    """Manual action is required. Repeating the call does not help and may do harm."""


def as_defect(error: Exception) -> Broken:
    """The error to report for an exception that this program does not expect."""
    return Broken(f"a defect of this program: {type(error).__name__}: {error}")
