"""When upkeep runs by the clock, as cron expressions in UTC.

The times of scheduled compactions are declared per table (`Scheduled.cron`).
"""

# The inventory of a lake runs at this time and, by default, so do the vacuums of `maintain`, which
# has no inventory. Usually, nightly loads are over, and the loads of the day have not begun.
NIGHTLY_CRON = "0 5 * * *"
# `maintenance/records` deletes Dagster's old records, which grow by about 2 GB a day.
RECORDS_CRON = "0 * * * *"
# The report is written an hour after the inventory. By then, the vacuums that the inventory
# requests are usually over.
REPORT_CRON = "0 6 * * *"
# Expired rows are deleted before the inventory and the vacuums run.
TTL_CRON = "30 4 * * *"
# Old partitions move to the archive before the TTL runs, so that no row expires instead of moving.
ARCHIVE_CRON = "0 4 * * *"
