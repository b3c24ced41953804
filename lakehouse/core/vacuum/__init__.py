"""Which files of a table are to be deleted, by which mode and at what price, and why."""

from lakehouse.core.vacuum.choice import DELETE_KEYS, Quote, choose_mode
from lakehouse.core.vacuum.facts import FAILED_NAMED, PastVacuum, ReportFacts, VacuumFacts, folders_to_ask, objects_by_log, written_once
from lakehouse.core.vacuum.plan import VacuumPlan, minute_text, plan_vacuum, still_doomed
from lakehouse.core.vacuum.policy import SHORT_RETENTION_RISK, VACUUM_MODES, Vacuum, type_of_mode
from lakehouse.core.vacuum.sift import Doomed, checksum_name

__all__ = [
    "DELETE_KEYS",
    "FAILED_NAMED",
    "SHORT_RETENTION_RISK",
    "VACUUM_MODES",
    "Doomed",
    "PastVacuum",
    "Quote",
    "ReportFacts",
    "Vacuum",
    "VacuumFacts",
    "VacuumPlan",
    "checksum_name",
    "choose_mode",
    "folders_to_ask",
    "minute_text",
    "objects_by_log",
    "plan_vacuum",
    "still_doomed",
    "type_of_mode",
    "written_once",
]
