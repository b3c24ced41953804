"""The three ways in which anything here can fail, told apart by the remedy."""


class LakehouseError(Exception):
    """Any failure that this project raises on purpose; its text is a whole sentence for a person."""

    exit_code = 1


class Refused(LakehouseError):
    """Refused on purpose and nothing was touched: the caller or a setting must change."""

    exit_code = 2


class Transient(LakehouseError):
    """The same call may succeed later, unchanged."""

    exit_code = 75


class Broken(LakehouseError):
    """A person must look: repeating the call will not help and may do harm."""
