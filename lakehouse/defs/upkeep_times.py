"""When upkeep runs by the clock, as cron expressions in UTC.

The times of scheduled compactions are declared per table (`Scheduled.cron`).
"""

# The inventory of a lake, and the vacuums of `maintain`, which has no inventory. At this hour the
# nightly loads are over, and those of the day have not begun.
NIGHTLY_CRON = "0 5 * * *"
# The retention of Dagster's own records, which grow by about 2 GB a day.
RECORDS_CRON = "*/30 * * * *"
# The morning page, an hour after the inventory, when the vacuums that follow it are usually over.
REPORT_CRON = "0 6 * * *"
# The rows that are past their time, before the inventory and the vacuums.
TTL_CRON = "30 4 * * *"
# Old partitions move to the archive before rows expire, so that none expires instead of moving.
ARCHIVE_CRON = "0 4 * * *"
