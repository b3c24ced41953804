"""The columns of change data, in the tables and on the way there."""

# Columns of the tables that change data is written to.
POSITION, CHANGED_AT, DELETED = "_position", "_changed_at", "_deleted"
# The columns whose values were not sent with the row's change, each with the order of the change that its value is from.
KEPT = "_kept"
# Columns of the lines alone. A line's old key has null for what is not known of the key before it.
OPERATION, OLD_KEY = "_lakehouse_operation", "_lakehouse_old_key"
CODE, IS_PLACED, IS_TIMED = "_lakehouse_code", "_lakehouse_is_placed", "_lakehouse_is_timed"
# The names of columns whose values were not sent.
UNSENT = "_lakehouse_unsent"
# Whether a row of the table keeps another value because of a change that is older than the row.
IS_MENDED = "_lakehouse_is_mended"
