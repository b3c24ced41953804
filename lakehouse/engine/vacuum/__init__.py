"""Vacuum: what the plan dooms, and Delta dooms too, checked once more and deleted by the thousand."""

from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.run import rehearse, vacuum
from lakehouse.engine.vacuum.table_facts import VacuumReading, gather, plan

__all__ = ["LakeFacts", "VacuumReading", "gather", "plan", "rehearse", "vacuum"]
