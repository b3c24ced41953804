"""The three kinds of failure. Each kind defines what has to happen next."""


class LakehouseError(Exception):
    """Any failure that this project raises on purpose. Its text is a sentence for a person."""

    exit_code = 1


class Refused(LakehouseError):
    """Refused on purpose, and nothing was changed. The caller or the configuration must change."""

    exit_code = 2


class Transient(LakehouseError):
    """The same call may succeed later, unchanged."""

    exit_code = 75


class Broken(LakehouseError):
    """Manual action is required. Repeating the call does not help and may do harm."""
