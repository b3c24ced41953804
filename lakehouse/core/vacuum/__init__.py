"""Which files of a table are to be deleted, by which mode and at what price, and why."""

from lakehouse.core.declaration.vacuum_policy import SHORT_RETENTION_RISK, VACUUM_MODES, Vacuum, type_of_mode
from lakehouse.core.vacuum.candidates import Candidate, checksum_name
from lakehouse.core.vacuum.facts import (
    ASKED_AT_ONCE,
    FAILED_NAMED,
    ReportFacts,
    VacuumFacts,
    VacuumRecord,
    are_partitions,
    folders_above,
    lists_partitions,
    objects_by_log,
    written_once,
)
from lakehouse.core.vacuum.mode import DELETE_KEYS, Quote, choose_mode
from lakehouse.core.vacuum.plan import LaterFacts, VacuumPlan, minute_text, plan_rest, plan_vacuum

__all__ = [
    "ASKED_AT_ONCE",
    "DELETE_KEYS",
    "FAILED_NAMED",
    "SHORT_RETENTION_RISK",
    "VACUUM_MODES",
    "Candidate",
    "LaterFacts",
    "Quote",
    "ReportFacts",
    "Vacuum",
    "VacuumFacts",
    "VacuumPlan",
    "VacuumRecord",
    "are_partitions",
    "checksum_name",
    "choose_mode",
    "folders_above",
    "lists_partitions",
    "minute_text",
    "objects_by_log",
    "plan_rest",
    "plan_vacuum",
    "type_of_mode",
    "written_once",
]
