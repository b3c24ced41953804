"""The names of the columns of change data, in tables and in intermediate rows."""

# In the tables that change data is written to.
POSITION = "_position"
CHANGED_AT = "_changed_at"
DELETED = "_deleted"
# Names the columns whose values the row's change did not send, each with the order of the change
# that sent the value.
KEPT = "_kept"

# Only in the parsed lines.
OPERATION = "_lakehouse_operation"
# The key before an update that changed it. Parts that are unknown are null.
OLD_KEY = "_lakehouse_old_key"
CODE = "_lakehouse_code"
HAS_POSITION = "_lakehouse_has_position"
HAS_COMMIT_TIME = "_lakehouse_has_commit_time"
# The names of the columns whose values were not sent.
UNSENT = "_lakehouse_unsent"

# In the changes of a batch, and in remembered deletions: whether a deletion comes from a truncation
# of the whole table.
TRUNCATED = "_truncated"
# In the changes of a batch: whether the row is the table's own row, with a kept value that a late,
# older change of its key corrects. It replaces the table's row, although it is not newer.
IS_CORRECTED = "_lakehouse_is_corrected"
