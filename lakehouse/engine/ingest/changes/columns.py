"""Names of the columns of change data, in tables and in intermediate rows."""

# In the tables that change data is written to.
POSITION, CHANGED_AT, DELETED = "_position", "_changed_at", "_deleted"
# The columns whose values the row's change did not send, each with the order of the change that
# sent its value.
KEPT = "_kept"

# Only in the parsed lines. Unknown parts of the old key are null.
OPERATION, OLD_KEY = "_lakehouse_operation", "_lakehouse_old_key"
CODE, IS_PLACED, IS_TIMED = "_lakehouse_code", "_lakehouse_is_placed", "_lakehouse_is_timed"
# The names of the columns whose values were not sent.
UNSENT = "_lakehouse_unsent"

# Only in the changes of a batch.
# Whether a deletion comes from a truncation of the whole table.
TRUNCATED = "_truncated"
# Whether the row replaces a row of the table that has the same position, because a late change gave
# it another kept value.
IS_MENDED = "_lakehouse_is_mended"
